//! The switch of each host, from a file in the form of Slurm's `topology.conf` or of `scontrol show topology`.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use ringmark_core::host::host_list;
use ringmark_core::options::usage::usage;

/// Switch by name of the host.
pub type Switches = HashMap<String, String>;

/// Reads a file with lines such as `SwitchName=leaf01 Nodes=node[01-16]`.
///
/// Words in front of `=` may have capital letters or not; other words, comments and switches without nodes are ignored.
/// Of several switches with the same host, the one with the fewest nodes connects it: Slurm's list of nodes contains those
/// of the lower levels.
pub fn read(file: &Path) -> anyhow::Result<Switches> {
    let read = || parse(&fs::read_to_string(file)?);
    read().with_context(|| format!("--switches {}", file.display())).map_err(usage)
}

fn parse(text: &str) -> anyhow::Result<Switches> {
    let mut connected: Vec<(&str, Vec<String>)> = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let value = |key: &str| {
            let words = line.split_whitespace().filter_map(|word| word.split_once('='));
            words.into_iter().find(|(word, _)| word.eq_ignore_ascii_case(key)).map(|(_, value)| value)
        };
        if let (Some(switch), Some(nodes)) = (value("SwitchName"), value("Nodes")) {
            let nodes = host_list::items(nodes).map(host_list::expand).collect::<anyhow::Result<Vec<_>>>();
            connected.push((switch, nodes.with_context(|| format!("switch {switch}"))?.concat()));
        }
    }
    ensure!(!connected.is_empty(), "no line like `SwitchName=leaf01 Nodes=node[01-16]`");
    // Smaller switches replace larger ones.
    connected.sort_by_key(|(_, nodes)| std::cmp::Reverse(nodes.len()));
    let mut switches = Switches::new();
    for (switch, nodes) in connected {
        switches.extend(nodes.into_iter().map(|node| (node, switch.to_owned())));
    }
    Ok(switches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smallest_switch_with_a_host_connects_it() {
        let text = "# made by hand\n\
            SwitchName=spine Switches=leaf[1-2]\n\
            switchname=leaf1 Nodes=n[1-3],x LinkSpeed=100 # old\n\
            SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n4\n\
            SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4],x Switches=leaf[1-2]\n";
        let switches = parse(text).expect("switches");
        let of = |host: &str| switches.get(host).map(String::as_str);
        assert_eq!(
            ["n1", "n3", "x", "n4", "n5"].map(of),
            [Some("leaf1"), Some("leaf1"), Some("leaf1"), Some("leaf2"), None]
        );
        assert_eq!(parse("").expect_err("empty").to_string(), "no line like `SwitchName=leaf01 Nodes=node[01-16]`");
        let wrong = parse("SwitchName=a Nodes=n[3-1]").expect_err("counts down");
        assert_eq!(
            format!("{wrong:#}"),
            "switch a: \"n[3-1]\" counts down from 3 to 1: write the smaller number first"
        );
    }
}
