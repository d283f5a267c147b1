//! Parsers for `--hosts` lists and hostfiles, in which the number of slots is optional; [`slots`](super::slots)
//! detects the missing numbers.

use std::fs;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use ringmark_core::host::host_list;

use crate::launch::cluster::hosts::{Host, HostSource, Hosts};

/// Hosts in the order in which they were typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypedHosts {
    source: HostSource,
    hosts: Vec<TypedHost>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct TypedHost {
    name: String,
    /// `None` if not given.
    slots: Option<u32>,
}

impl TypedHosts {
    /// Parses a list such as `a:8,b:8` or `a,b`. `node[01-64]:8` expands to 64 hosts.
    pub fn parse(text: &str) -> anyhow::Result<TypedHosts> {
        let path = text.strip_prefix('@').unwrap_or(text);
        let is_file = text != path || path.contains('/') || path.ends_with(".txt") || Path::new(path).is_file();
        ensure!(!is_file, "{text} is a file: use --hostfile {path}");
        let names = text.split([';', ' ']).filter(|name| !name.is_empty()).collect::<Vec<_>>();
        ensure!(!text.contains(';'), "separate hosts by commas: {}", names.join(","));
        let hosts = host_list::items(text).map(|host| parse_host(host.trim())).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(TypedHosts { source: HostSource::List, hosts: hosts.concat() })
    }

    /// Reads a hostfile, one host per line: `host slots=8` (Open MPI), `host:8` or `host`; `#` starts a comment.
    ///
    /// Errors name the file, the line number (from 1) and the offending text.
    pub fn read_file(path: &Path) -> anyhow::Result<TypedHosts> {
        let source = HostSource::Hostfile(path.to_owned());
        ensure!(path.exists(), "{source} does not exist: create it with a line such as `a slots=8` for each host");
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {source}"))?;
        let mut hosts = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default().trim();
            if !content.is_empty() {
                hosts.extend(parse_line(content).with_context(|| format!("{source}, line {}", index + 1))?);
            }
        }
        ensure!(!hosts.is_empty(), "{source} lists no hosts: write a line such as `a slots=8` for each");
        Ok(TypedHosts { source, hosts })
    }

    /// Returns the names of the hosts without a number of slots.
    pub fn without_slots(&self) -> Vec<&str> {
        self.hosts.iter().filter(|host| host.slots.is_none()).map(|host| host.name.as_str()).collect()
    }

    /// Fills in the missing slot numbers from `found`, in order. Fails if a number is still missing.
    pub fn into_hosts(self, found: impl IntoIterator<Item = u32>) -> anyhow::Result<Hosts> {
        let mut found = found.into_iter();
        let hosts = self.hosts.iter().map(|TypedHost { name, slots }| match slots.or_else(|| found.next()) {
            Some(slots) => Ok(Host { name: name.clone(), slots }),
            None => {
                let all = host_list::compact(self.without_slots());
                bail!("host {name:?} has no slot count: write {all}:8 for 8 ranks")
            }
        });
        let hosts: Vec<Host> = hosts.collect::<anyhow::Result<_>>()?;
        Hosts::named(self.source, hosts)
    }

    /// Fails if a host has no number of slots.
    pub fn into_hosts_with_slots(self) -> anyhow::Result<Hosts> {
        self.into_hosts([])
    }
}

/// Parses `a:8` or `a`.
fn parse_host(text: &str) -> anyhow::Result<Vec<TypedHost>> {
    let count = |bracket| text.matches(bracket).count();
    ensure!(count('[') == count(']'), "the brackets of {text:?} do not match: write node[1-64]:8 for 64 hosts");
    match text.rsplit_once(':') {
        Some((name, slots)) => {
            if let Some((_, first)) = name.split_once(':') {
                ensure!(
                    !first.contains(' '),
                    "separate hosts by commas: {}",
                    text.split_whitespace().collect::<Vec<_>>().join(",")
                );
                bail!("{text:?} has two slot counts, {first} and {slots}: write one");
            }
            expand(name, Some(slots))
        }
        None => expand(text, None),
    }
}

/// Expands the brackets of `name`.
fn expand(name: &str, slots: Option<&str>) -> anyhow::Result<Vec<TypedHost>> {
    host_list::expand(name)?.iter().map(|name| host(name, slots)).collect()
}

/// Parses `a slots=8`, `a:8` or `a`. Open MPI's `max_slots` is ignored: a case that fits never exceeds it.
fn parse_line(text: &str) -> anyhow::Result<Vec<TypedHost>> {
    let mut fields = text.split_whitespace();
    let name = fields.next().unwrap_or_default();
    let mut slots = None;
    for field in fields {
        match field.split_once('=') {
            Some(("slots", number)) => slots = Some(number),
            Some(("max_slots" | "max-slots", _)) => {}
            _ => bail!("unknown field {field:?}: write `{name} slots=8` for 8 ranks"),
        }
    }
    match slots {
        Some(slots) => expand(name, Some(slots)),
        None => parse_host(name),
    }
}

fn host(name: &str, slots: Option<&str>) -> anyhow::Result<TypedHost> {
    let is_name =
        !name.is_empty() && !name.starts_with('-') && !name.contains([' ', ',', '=', '/', '(', ')', '*', '$']);
    ensure!(is_name, "{name:?} is not a host name: write name:8 or address:8");
    ensure!(
        !name.bytes().all(|byte| byte.is_ascii_digit()),
        "{name} is a number, not a host name: write localhost:{name} for {name} ranks on this machine, or name:{name}"
    );
    let number = |slots: &str| match slots.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => bail!("host {name} has {slots:?} slots: write a number of at least 1"),
    };
    Ok(TypedHost { name: name.to_owned(), slots: slots.map(number).transpose()? })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::temporary_folder::without_folder;

    fn file(text: &str) -> anyhow::Result<Hosts> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("nodes");
        fs::write(&path, text).expect("written");
        TypedHosts::read_file(&path)?.into_hosts_with_slots()
    }

    fn list_error(text: &str) -> String {
        format!("{:#}", Hosts::parse_list(text).expect_err(text))
    }

    fn file_error(text: &str) -> String {
        format!("{:#}", file(text).expect_err(text))
    }

    #[test]
    fn host_list_and_hostfile_are_equivalent() {
        let list = Hosts::parse_list("a:8, 10.11.0.3:4").expect("a list");
        assert_eq!(list.all()[1], Host { name: "10.11.0.3".to_owned(), slots: 4 });
        let text = "# two nodes\n\na   slots=8 max_slots=16 # the first\n10.11.0.3:4\n";
        assert_eq!(file(text).expect("a hostfile").all(), list.all());
    }

    #[test]
    fn bracket_ranges_expand_to_hosts() {
        let names = |hosts: &Hosts| hosts.all().iter().map(Host::to_string).collect::<Vec<_>>();
        let list = Hosts::parse_list("n[08-10,12]:8,b:4").expect("a list");
        assert_eq!(names(&list), ["n08:8", "n09:8", "n10:8", "n12:8", "b:4"]);
        assert_eq!(names(&file("n[08-10,12] slots=8\nb:4\n").expect("a hostfile")), names(&list));
        expect![[r#""n[2-1]" counts down from 2 to 1: write the smaller number first"#]]
            .assert_eq(&list_error("n[2-1]:8"));
        assert_eq!(Hosts::parse_list("node[1-8192]:8").expect("a list").all().len(), 8192);
    }

    #[test]
    fn detected_slots_fill_in_missing_ones() {
        let list = TypedHosts::parse("a,b:4,c").expect("a list");
        assert_eq!(list.without_slots(), ["a", "c"]);
        let slots: Vec<u32> = list.into_hosts([8, 2]).expect("hosts").all().iter().map(|host| host.slots).collect();
        assert_eq!(slots, [8, 4, 2]);
    }

    #[test]
    fn invalid_host_list_names_the_value_and_the_fix() {
        expect![[r#"host "b" has no slot count: write b:8 for 8 ranks"#]].assert_eq(&list_error("a:8,b"));
        expect![[r#"host "node1" has no slot count: write node[1-64]:8 for 8 ranks"#]]
            .assert_eq(&list_error("node[1-64]"));
        expect![[r#"host a has "none" slots: write a number of at least 1"#]].assert_eq(&list_error("a:none"));
        expect![[r#"host a has "0" slots: write a number of at least 1"#]].assert_eq(&list_error("a:0"));
        expect![[r#""" is not a host name: write name:8 or address:8"#]].assert_eq(&list_error(":8"));
        expect![[r#""-x" is not a host name: write name:8 or address:8"#]].assert_eq(&list_error("-x:8"));
        expect![[r#""a:8:9" has two slot counts, 8 and 9: write one"#]].assert_eq(&list_error("a:8:9"));
        expect!["--hosts lists host a twice: list it once, with all its slots"].assert_eq(&list_error("a:8,a:4"));
        expect![[r#"the brackets of "n[1-2:8,b:4" do not match: write node[1-64]:8 for 64 hosts"#]]
            .assert_eq(&list_error("n[1-2:8,b:4"));
    }

    #[test]
    fn invalid_hostfile_names_the_line() {
        let error = file_error("a slots=8\nb slots=many\n");
        expect![[r#"the hostfile DIR/nodes, line 2: host b has "many" slots: write a number of at least 1"#]]
            .assert_eq(&without_folder(&error));
        let error = file_error("a gpus=8\n");
        expect![[r#"the hostfile DIR/nodes, line 1: unknown field "gpus=8": write `a slots=8` for 8 ranks"#]]
            .assert_eq(&without_folder(&error));
        expect!["the hostfile DIR/nodes lists no hosts: write a line such as `a slots=8` for each"]
            .assert_eq(&without_folder(&file_error("# nothing\n")));
        expect!["the hostfile DIR/nodes lists host a twice: list it once, with all its slots"]
            .assert_eq(&without_folder(&file_error("a:8\na slots=8\n")));
    }
}
