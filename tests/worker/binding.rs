//! Binding of real ranks and their threads to cores.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ringmark_core::host::processors::{NumberSet, Topology};
use ringmark_core::host::{BindChoice, BindingMode};

use crate::support::processes_of;
use crate::support::sandbox::wait_until;
use crate::support::worker_run::Run;

/// Long enough to read the threads of all ranks.
const OPTIONS: &str = "--model resnet18 --iters 60";

/// Returns the processors that each thread of each rank may use, by the process of the rank.
fn processors_of_threads(folder: &Path) -> BTreeMap<u32, Vec<String>> {
    let is_rank = |line: &str| line.split('\0').next().is_some_and(|program| program.ends_with("/worker"));
    let ranks = processes_of(folder).into_iter().filter(|(_, line)| is_rank(line));
    let threads = |process: i32| -> Vec<String> {
        let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
        let status = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("status")).ok();
        let list = |status: String| {
            status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).map(|list| list.trim().to_owned())
        };
        threads.filter_map(status).filter_map(list).collect()
    };
    ranks.map(|(process, _)| (process.as_raw() as u32, threads(process.as_raw()))).collect()
}

#[test]
fn all_threads_of_a_rank_are_bound_to_its_own_cores() {
    let topology = Topology::read();
    assert!(topology.cores() > 1, "this test needs two cores");
    let mut threads = BTreeMap::new();
    let finished = Run::ranks(2, &format!("{OPTIONS} --bind core")).finish_after(|stdout, folder| {
        let has_started = || fs::read_to_string(stdout).is_ok_and(|text| text.contains("rank 1: host "));
        wait_until("the first lines of the log", has_started);
        threads = processors_of_threads(folder);
    });
    let stdout = finished.stdout.clone();
    let record = finished.valid_record();
    assert_eq!(record.header.config.bind, BindChoice::Core);
    let mut used = Vec::new();
    for rank in &record.header.ranks {
        let binding = rank.binding.as_ref().expect("bound");
        assert_eq!(binding.mode, BindingMode::Core);
        let of_rank = &threads[&rank.process];
        assert!(of_rank.len() > 1 && of_rank.iter().all(|list| *list == binding.processors), "{rank:?}: {of_rank:?}");
        assert!(stdout.contains(&format!(" with 1 thread on {binding}\n")), "{stdout}");
        used.push(NumberSet::parse(&binding.processors).0);
    }
    assert!(used[0].is_disjoint(&used[1]), "{used:?}");
    assert!(used.iter().all(|used| !used.is_empty() && used.is_subset(&topology.processors().0)), "{used:?}");
    assert_eq!(record.header.environment.cores, topology.cores());
}

#[test]
fn ranks_bound_by_mpirun_stay_bound() {
    let run = |options: &str| Run::processes(2, "--bind-to core", &format!("--model resnet18 --iters 1 {options}"));
    for (options, choice) in [("", BindChoice::None), ("--bind core", BindChoice::Core)] {
        let record = run(options).valid_record();
        let bindings = record.header.ranks.iter().map(|rank| rank.binding.as_ref().expect("bound"));
        let bindings: Vec<_> = bindings.collect();
        assert!(bindings.iter().all(|binding| binding.mode == BindingMode::Launcher), "{bindings:?}");
        assert_ne!(bindings[0].processors, bindings[1].processors);
        assert_eq!(record.header.config.bind, choice);
    }
}

#[test]
fn ranks_are_not_bound_by_default_on_one_node() {
    if Topology::read().cores_per_node().len() > 1 {
        return;
    }
    let finished = Run::ranks(2, "--model resnet18 --iters 1").finish();
    assert!(finished.stdout.contains(" with 1 thread\n"), "{}", finished.stdout);
    let record = finished.valid_record();
    assert!(record.header.ranks.iter().all(|rank| rank.binding.is_none()));
    assert_eq!(record.header.config.bind, BindChoice::None);
}

#[test]
fn more_ranks_than_cores_are_not_bound_to_cores() {
    let ranks = Topology::read().cores() + 1;
    let message = Run::processes(ranks, "", "--model resnet18 --iters 1 --bind core").refusal(1);
    let expected = format!("--bind core: {ranks} ranks of host HOST share {} cores: use --bind none", ranks - 1);
    assert!(message.contains(&expected), "{message}");
}
