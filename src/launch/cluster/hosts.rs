//! The machines of a sweep and how many ranks each takes. Not for reaching them: that is mpirun's business.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail, ensure};
use ringmark_record::dimension::case::Case;

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Name or address, as mpirun is to use it.
    pub name: String,
    /// Ranks it takes: GPUs, or equal parts of the CPU. At least 1.
    pub slots: u32,
}

/// The machines of a sweep in the order they are used; no name comes twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts {
    /// Where the list comes from, as error messages call it: `--hosts` or `the hostfile nodes.txt`, say.
    source: String,
    /// How to get more of them, where a scheduler chose them.
    request: Option<&'static str>,
    hosts: Vec<Host>,
}

impl Hosts {
    /// This machine alone, under the name that mpirun never asks ssh for.
    pub fn this_machine(slots: u32) -> Hosts {
        Hosts {
            source: "the default (this machine)".to_owned(),
            request: None,
            hosts: vec![Host { name: "localhost".to_owned(), slots }],
        }
    }

    /// Reads the list `a:8,b:8`.
    pub fn parse_list(text: &str) -> anyhow::Result<Hosts> {
        let hosts = text.split(',').map(|host| parse_host(host.trim())).collect::<anyhow::Result<_>>()?;
        Hosts::without_duplicates("--hosts".to_owned(), hosts)
    }

    /// Reads a hostfile: `host slots=8` as Open MPI has it, or `host:8`, one a line; `#` begins a comment.
    ///
    /// Errors name the file, the line from 1 and what stands there.
    pub fn read_file(path: &Path) -> anyhow::Result<Hosts> {
        let source = format!("the hostfile {}", path.display());
        let text = fs::read_to_string(path).with_context(|| format!("{source} cannot be read"))?;
        let mut hosts = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let content = line.split('#').next().unwrap_or_default().trim();
            if !content.is_empty() {
                hosts.push(parse_line(content).with_context(|| format!("{source}, line {}", index + 1))?);
            }
        }
        ensure!(!hosts.is_empty(), "{source} names no host: write a line such as `a slots=8` for each");
        Hosts::without_duplicates(source, hosts)
    }

    /// Those that a scheduler gave. `source` is what error messages call them, `request` says how to get more.
    pub fn allocated(source: String, request: &'static str, hosts: Vec<Host>) -> anyhow::Result<Hosts> {
        ensure!(!hosts.is_empty(), "{source} has no host");
        Ok(Hosts { request: Some(request), ..Hosts::without_duplicates(source, hosts)? })
    }

    /// Refuses hosts that `allocation` has not, and more slots than it has there.
    pub fn check_within(&self, allocation: &Hosts) -> anyhow::Result<()> {
        let (source, given) = (&self.source, &allocation.source);
        for Host { name, slots } in &self.hosts {
            let Some(there) = allocation.hosts.iter().find(|host| host.name == *name) else {
                let names: Vec<&str> = allocation.hosts.iter().map(|host| host.name.as_str()).collect();
                bail!(
                    "{source} names host {name}, {given} has {}: leave {source} out, or choose of these",
                    names.join(", ")
                );
            };
            ensure!(
                *slots <= there.slots,
                "{source} gives host {name} {slots} slots, {given} has {}: leave {source} out, or {}",
                there.slots,
                allocation.request.unwrap_or("choose fewer"),
            );
        }
        Ok(())
    }

    fn without_duplicates(source: String, hosts: Vec<Host>) -> anyhow::Result<Hosts> {
        for (index, host) in hosts.iter().enumerate() {
            if hosts[..index].iter().any(|earlier| earlier.name == host.name) {
                bail!("{source} names host {} twice: name it once, with all its slots", host.name);
            }
        }
        Ok(Hosts { source, request: None, hosts })
    }

    /// Every host.
    pub fn all(&self) -> &[Host] {
        &self.hosts
    }

    /// The hosts that `case` uses: the first of the list. Fewer than it needs where it does not fit.
    pub fn of(&self, case: Case) -> &[Host] {
        let count = self.hosts.len().min(case.nodes as usize);
        &self.hosts[..count]
    }

    /// The case that uses every host, each with as many ranks as the smallest of them takes.
    pub fn whole(&self) -> Case {
        let smallest = self.hosts.iter().map(|host| host.slots).min().unwrap_or(1);
        Case { nodes: u32::try_from(self.hosts.len()).unwrap_or(u32::MAX), gpus_per_node: smallest }
    }

    /// Whether `case` can be launched here.
    pub fn fit(&self, case: Case) -> bool {
        self.misfit(case).is_none()
    }

    /// Refuses, all at once, the cases that do not fit; the message names the cases that do.
    pub fn check(&self, cases: &[Case]) -> anyhow::Result<()> {
        let misfits: Vec<(Misfit, String)> = cases.iter().filter_map(|case| self.misfit(*case)).collect();
        if misfits.is_empty() {
            return Ok(());
        }
        let mut fixes: Vec<String> = self.request.iter().map(|request| (*request).to_owned()).collect();
        let lacks = |wanted| self.request.is_none() && misfits.iter().any(|(misfit, _)| *misfit == wanted);
        if lacks(Misfit::Hosts) {
            fixes.push("add a host".to_owned());
        }
        if lacks(Misfit::Slots) {
            fixes.push("raise the slots, as in --hosts localhost:8, to share cores or GPUs on purpose".to_owned());
        }
        let fitting: Vec<String> = cases.iter().filter(|case| self.fit(**case)).map(Case::to_string).collect();
        if !fitting.is_empty() {
            fixes.push(format!("choose --cases {}", fitting.join(",")));
        }
        let faults: Vec<String> = misfits.into_iter().map(|(_, fault)| fault).collect();
        bail!("{}: {}", faults.join("\n"), fixes.join(", or "))
    }

    fn misfit(&self, case: Case) -> Option<(Misfit, String)> {
        let Hosts { source, hosts, .. } = self;
        if hosts.len() < case.nodes as usize {
            let fault = format!("case {case} needs {} hosts, {source} has {}", case.nodes, hosts.len());
            return Some((Misfit::Hosts, fault));
        }
        let small = self.of(case).iter().find(|host| host.slots < case.gpus_per_node)?;
        let fault =
            format!("case {case} needs {} slots a host, {} has {}", case.gpus_per_node, small.name, small.slots);
        Some((Misfit::Slots, fault))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Misfit {
    Hosts,
    Slots,
}

/// `a:8`.
fn parse_host(text: &str) -> anyhow::Result<Host> {
    let Some((name, slots)) = text.rsplit_once(':') else {
        bail!("host {text:?} has no number of slots: write {text}:8 for 8 ranks");
    };
    host(name, slots)
}

/// `a slots=8`, `a:8`, with or without Open MPI's upper limit, which a case that fits never reaches.
fn parse_line(text: &str) -> anyhow::Result<Host> {
    let mut fields = text.split_whitespace();
    let name = fields.next().unwrap_or_default();
    let mut slots = None;
    for field in fields {
        match field.split_once('=') {
            Some(("slots", number)) => slots = Some(number),
            Some(("max_slots" | "max-slots", _)) => {}
            _ => bail!("{field:?} is not understood: write `{name} slots=8` for 8 ranks"),
        }
    }
    match slots {
        Some(slots) => host(name, slots),
        None if name.contains(':') => parse_host(name),
        None => bail!("host {name:?} has no number of slots: write `{name} slots=8` for 8 ranks"),
    }
}

fn host(name: &str, slots: &str) -> anyhow::Result<Host> {
    let is_name = !name.is_empty() && !name.starts_with('-') && !name.contains([' ', ',', '=', '/']);
    ensure!(is_name, "{name:?} is no name of a host: write name:8 or address:8");
    match slots.parse() {
        Ok(number) if number > 0 => Ok(Host { name: name.to_owned(), slots: number }),
        _ => bail!("host {name} has {slots:?} slots: write a number from 1"),
    }
}

/// GPUs that a program started here can see: those of `nvidia-smi -L`, less what CUDA_VISIBLE_DEVICES
/// (`visible_devices`) hides. 0 where there is no driver.
pub fn gpus(visible_devices: Option<&str>) -> u32 {
    match Command::new("nvidia-smi").arg("-L").output() {
        Ok(output) if output.status.success() => count_gpus(&String::from_utf8_lossy(&output.stdout), visible_devices),
        _ => 0,
    }
}

fn count_gpus(listing: &str, visible_devices: Option<&str>) -> u32 {
    let present = listing.lines().filter(|line| line.starts_with("GPU ")).count();
    // CUDA stops at the first entry that names no device.
    let visible = visible_devices
        .map_or(present, |list| list.split(',').take_while(|entry| !matches!(entry.trim(), "" | "-1")).count());
    u32::try_from(present.min(visible)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases(text: &str) -> Vec<Case> {
        text.split(',').map(|word| word.parse().expect("a case")).collect()
    }

    fn file(text: &str) -> anyhow::Result<Hosts> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("nodes");
        fs::write(&path, text).expect("written");
        Hosts::read_file(&path)
    }

    fn list_error(text: &str) -> String {
        format!("{:#}", Hosts::parse_list(text).expect_err(text))
    }

    fn file_error(text: &str) -> String {
        format!("{:#}", file(text).expect_err(text))
    }

    #[test]
    fn a_list_and_a_hostfile_say_the_same() {
        let list = Hosts::parse_list("a:8, 10.11.0.3:4").expect("a list");
        assert_eq!(list.hosts[1], Host { name: "10.11.0.3".to_owned(), slots: 4 });
        let text = "# two nodes\n\na   slots=8 max_slots=16 # the first\n10.11.0.3:4\n";
        assert_eq!(file(text).expect("a hostfile").hosts, list.hosts);
    }

    #[test]
    fn a_bad_list_names_the_value_and_the_fix() {
        assert_eq!(list_error("a:8,b"), "host \"b\" has no number of slots: write b:8 for 8 ranks");
        assert_eq!(list_error("a:none"), "host a has \"none\" slots: write a number from 1");
        assert_eq!(list_error("a:0"), "host a has \"0\" slots: write a number from 1");
        assert_eq!(list_error(":8"), "\"\" is no name of a host: write name:8 or address:8");
        assert_eq!(list_error("-x:8"), "\"-x\" is no name of a host: write name:8 or address:8");
        assert_eq!(list_error("a:8,a:4"), "--hosts names host a twice: name it once, with all its slots");
    }

    #[test]
    fn a_bad_hostfile_names_the_line() {
        let error = file_error("a slots=8\nb slots=many\n");
        assert!(error.ends_with("line 2: host b has \"many\" slots: write a number from 1"), "{error}");
        let error = file_error("a\n");
        assert!(error.ends_with("line 1: host \"a\" has no number of slots: write `a slots=8` for 8 ranks"), "{error}");
        let error = file_error("a gpus=8\n");
        assert!(error.ends_with("line 1: \"gpus=8\" is not understood: write `a slots=8` for 8 ranks"), "{error}");
        assert!(file_error("# nothing\n").contains("names no host"));
        assert!(file_error("a:8\na slots=8\n").contains("names host a twice"));
    }

    #[test]
    fn a_case_takes_the_first_hosts() {
        let hosts = Hosts::parse_list("a:8,b:8,c:4").expect("a list");
        assert_eq!(hosts.of("2n4g".parse().expect("a case")).len(), 2);
        for (case, fit) in [("1n8g", true), ("2n8g", true), ("3n4g", true), ("3n8g", false), ("4n1g", false)] {
            assert_eq!(hosts.fit(case.parse().expect("a case")), fit, "{case}");
        }
    }

    #[test]
    fn the_whole_is_as_many_ranks_of_each_as_the_smallest_takes() {
        let hosts = Hosts::parse_list("a:8,b:8,c:4").expect("a list");
        assert_eq!(hosts.whole().to_string(), "3n4g");
        assert_eq!(Hosts::this_machine(2).whole().to_string(), "1n2g");
    }

    #[test]
    fn every_case_that_does_not_fit_is_named_with_the_fix() {
        let hosts = Hosts { source: "the hostfile nodes".to_owned(), ..Hosts::parse_list("a:8").expect("a list") };
        let error = hosts.check(&cases("1n1g,1n8g,2n8g")).expect_err("does not fit").to_string();
        assert_eq!(error, "case 2n8g needs 2 hosts, the hostfile nodes has 1: add a host, or choose --cases 1n1g,1n8g");
        let error = Hosts::this_machine(2).check(&cases("1n4g,2n8g")).expect_err("does not fit").to_string();
        assert_eq!(
            error,
            "case 1n4g needs 4 slots a host, localhost has 2\n\
             case 2n8g needs 2 hosts, the default (this machine) has 1: add a host, or raise the slots, \
             as in --hosts localhost:8, to share cores or GPUs on purpose"
        );
        hosts.check(&cases("1n1g,1n8g")).expect("they fit");
    }

    #[test]
    fn gpus_are_those_that_cuda_shows() {
        let listing = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n  MIG 1g.10gb Device 0\nGPU 1: NVIDIA H100\n";
        for (visible, count) in [(None, 2), (Some("0,1,2"), 2), (Some("1"), 1), (Some(""), 0), (Some("0,-1,1"), 1)] {
            assert_eq!(count_gpus(listing, visible), count, "{visible:?}");
        }
    }
}
