//! Reads a Grid Engine job: its hosts with their slots. Open MPI's mpirun starts ranks on them with `qrsh -inherit`, so
//! that Grid Engine tracks every process. Jobs are submitted with qsub (scripts/gridengine.sh).

use std::fs;

use anyhow::{Context, anyhow, bail};
use ringmark_core::options::usage::usage;

use crate::launch::cluster::hosts::{Host, Hosts};
use crate::launch::local::environment::{GRID_ENGINE, LaunchEnvironment};

/// Returns the hosts of the job that this process runs in, each with its slots in the job. If the user chose hosts,
/// returns `given` after checking that the job contains them.
pub fn hosts(environment: &LaunchEnvironment, given: Option<Hosts>) -> anyhow::Result<Hosts> {
    check(environment)?;
    let variable = |name| environment.scheduler.get(name).map(String::as_str).unwrap_or_default();
    let file = variable("PE_HOSTFILE");
    let text = fs::read_to_string(file).with_context(|| format!("cannot read PE_HOSTFILE={file}"))?;
    let hosts = parse(&text).with_context(|| format!("PE_HOSTFILE={file}"))?;
    let source = format!("the Grid Engine job {}", variable("JOB_ID"));
    let all = Hosts::allocated(source, "request more slots (qsub -pe NAME SLOTS)", hosts)?;
    let Some(given) = given else { return Ok(all) };
    given.check_within(&all).map_err(usage)?;
    Ok(given)
}

/// Fails if Open MPI would not start ranks through Grid Engine in this environment.
pub fn check(environment: &LaunchEnvironment) -> anyhow::Result<()> {
    let missing = GRID_ENGINE.iter().find(|name| !environment.scheduler.contains_key(**name));
    let message = match (missing, environment.scheduler.get("JOB_ID")) {
        (Some(&"PE_HOSTFILE"), Some(job)) => {
            format!(
                "the Grid Engine job {job} has no PE_HOSTFILE: submit it with a parallel environment (qsub -pe NAME \
                 SLOTS)"
            )
        }
        (Some(name), _) => format!(
            "--launcher gridengine needs a Grid Engine job, but {name} is not set: use qsub (scripts/gridengine.sh) \
             or qrsh with -pe NAME SLOTS"
        ),
        (None, _) => match &environment.ssh_agent {
            Some(agent) => format!(
                "OMPI_MCA_plm_rsh_agent={agent} prevents Open MPI from starting ranks through Grid Engine: unset it, \
                 or use --launcher mpirun"
            ),
            None => return Ok(()),
        },
    };
    Err(usage(anyhow!(message)))
}

/// Parses lines such as `a 8 all.q@a UNDEFINED`, one for each queue with slots of the job on a host.
pub fn parse(text: &str) -> anyhow::Result<Vec<Host>> {
    let mut hosts: Vec<Host> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut fields = line.split_whitespace();
        let Some(name) = fields.next() else { continue };
        let Some(slots) = fields.next().and_then(|slots| slots.parse::<u32>().ok()) else {
            bail!(
                "line {} is {line:?}, not a host and its slots such as \"a 8 all.q@a UNDEFINED\": do not change the \
                 variable that Grid Engine sets",
                index + 1
            );
        };
        match hosts.iter_mut().find(|host| host.name == name) {
            Some(host) => host.slots = host.slots.saturating_add(slots),
            None => hosts.push(Host { name: name.to_owned(), slots }),
        }
    }
    // A parallel environment may assign no slots to the host that runs the job's script.
    hosts.retain(|host| host.slots > 0);
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use expect_test::expect;
    use ringmark_core::dimension::DeviceChoice;

    use super::*;

    /// Grid Engine 8.1.9's host file for a job with two slots on each of two hosts.
    const HOSTFILE: &str = "\
ringmark-1 2 all.q@ringmark-1 UNDEFINED
ringmark-2 2 all.q@ringmark-2 UNDEFINED
";

    /// Returns the environment of job 7, with `file` as its PE_HOSTFILE.
    fn environment(file: &Path) -> LaunchEnvironment {
        let file = file.to_str().expect("a plain name");
        let variables =
            [("PE_HOSTFILE", file), ("JOB_ID", "7"), ("SGE_ROOT", "/var/lib/gridengine"), ("ARC", "lx-amd64")];
        let scheduler = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        LaunchEnvironment { scheduler, ..LaunchEnvironment::default() }
    }

    fn hosts_in(text: &str, given: Option<&str>) -> anyhow::Result<Hosts> {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pe_hostfile");
        fs::write(&file, text).expect("written");
        hosts(&environment(&file), given.map(|list| Hosts::parse_list(list).expect("hosts")))
    }

    fn error_in(text: &str, given: Option<&str>) -> String {
        format!("{:#}", hosts_in(text, given).expect_err(text))
    }

    fn named(hosts: &[Host]) -> Vec<(&str, u32)> {
        hosts.iter().map(|host| (host.name.as_str(), host.slots)).collect()
    }

    #[test]
    fn hosts_and_slots_come_from_the_job() {
        let hosts = hosts_in(HOSTFILE, None).expect("hosts");
        assert_eq!(named(hosts.all()), [("ringmark-1", 2), ("ringmark-2", 2)]);
        let queues = "b 2 all.q@b UNDEFINED\na 1 all.q@a UNDEFINED\n\nb 3 gpu.q@b 0,0:0,1\nc 0 all.q@c UNDEFINED\n";
        assert_eq!(named(&parse(queues).expect("hosts")), [("b", 5), ("a", 1)]);
    }

    #[test]
    fn malformed_hostfile_error_names_the_line() {
        for (line, text) in
            [(2, "a 2 all.q@a UNDEFINED\nb\n"), (1, "a two all.q@a UNDEFINED\n"), (3, "a 1\nb 1\nc -1\n")]
        {
            let error = error_in(text, None);
            let wrong = text.lines().nth(line - 1).expect("the line");
            assert!(
                error.contains(&format!("pe_hostfile: line {line} is {wrong:?}, not a host and its slots")),
                "{error}"
            );
        }
        expect!["the Grid Engine job 7 has no hosts"].assert_eq(&error_in("", None));
        let error = hosts(&environment(Path::new("/nowhere")), None).expect_err("missing file");
        expect!["cannot read PE_HOSTFILE=/nowhere: No such file or directory (os error 2)"]
            .assert_eq(&format!("{error:#}"));
    }

    #[test]
    fn too_large_case_error_suggests_more_slots() {
        let hosts = hosts_in(HOSTFILE, None).expect("hosts");
        let refused = |cases: &[&str]| {
            let cases: Vec<_> = cases.iter().map(|case| case.parse().expect("a case")).collect();
            hosts.check(&cases, DeviceChoice::Auto).expect_err("too large").to_string()
        };
        expect!["case 2n4g needs 4 slots per host, but ringmark-1 has 2: request more slots (qsub -pe NAME SLOTS)"]
            .assert_eq(&refused(&["2n4g"]));
        expect!["case 3n1g needs 3 hosts, the Grid Engine job 7 has 2: request more slots (qsub -pe NAME SLOTS), or choose --cases 1n2g"].assert_eq(&refused(&["1n2g", "3n1g"]));
    }

    #[test]
    fn given_hosts_must_be_in_the_job() {
        let hosts = hosts_in(HOSTFILE, Some("ringmark-2:1")).expect("hosts");
        assert_eq!(named(hosts.all()), [("ringmark-2", 1)]);
        expect![
            "--hosts lists host c, but the Grid Engine job 7 has ringmark-[1-2]: omit --hosts, or choose from these"
        ]
        .assert_eq(&error_in(HOSTFILE, Some("ringmark-1:1,c:1")));
        expect!["--hosts gives host ringmark-1 4 slots, but the Grid Engine job 7 has 2: omit --hosts, or request more slots (qsub -pe NAME SLOTS)"].assert_eq(&error_in(HOSTFILE, Some("ringmark-1:4")));
    }

    #[test]
    fn error_outside_a_job_names_the_missing_variable() {
        let inside = environment(Path::new("/nowhere"));
        check(&inside).expect("inside a job");
        let without = |names: &[&str]| {
            let mut environment = inside.clone();
            environment.scheduler.retain(|name, _| !names.contains(&name.as_str()));
            check(&environment).expect_err("something is missing").to_string()
        };
        let outside = without(&GRID_ENGINE);
        expect!["--launcher gridengine needs a Grid Engine job, but PE_HOSTFILE is not set: use qsub (scripts/gridengine.sh) or qrsh with -pe NAME SLOTS"].assert_eq(&outside);
        let serial = without(&["PE_HOSTFILE"]);
        expect![
            "the Grid Engine job 7 has no PE_HOSTFILE: submit it with a parallel environment (qsub -pe NAME SLOTS)"
        ]
        .assert_eq(&serial);
        expect!["--launcher gridengine needs a Grid Engine job, but ARC is not set: use qsub (scripts/gridengine.sh) or qrsh with -pe NAME SLOTS"].assert_eq(&without(&["ARC"]));
        let agent = LaunchEnvironment { ssh_agent: Some("ssh".to_owned()), ..inside };
        let error = check(&agent).expect_err("an agent").to_string();
        expect!["OMPI_MCA_plm_rsh_agent=ssh prevents Open MPI from starting ranks through Grid Engine: unset it, or use --launcher mpirun"].assert_eq(&error);
    }
}
