//! Time of planning an acceptance: all rounds of a simulated fleet, and the verdict, without the simulation.

use divan::Bencher;
use ringmark_core::accept::simulation::{Defect, SimulatedFleet};
use ringmark_core::accept::{Criteria, Search};

fn main() {
    divan::main();
}

/// A fleet with four bad hosts and a bad link.
#[divan::bench(args = [64, 256, 1024], sample_count = 5, sample_size = 1)]
fn search(bencher: Bencher, hosts: usize) {
    let slow = (0..4).map(|index| Defect::SlowHost { host: index * hosts / 4, factor: 0.9 });
    let link = Defect::BadLink { hosts: [1, hosts - 2], factor: 0.6 };
    let fleet = SimulatedFleet { defects: slow.chain([link]).collect(), ..SimulatedFleet::new(hosts, 1) };
    let search = Search::new(fleet.hosts.clone(), Criteria::default(), 1);
    let (verdict, done) = fleet.accept(&search);
    assert!(verdict.hosts[0].fitness != verdict.hosts[1].fitness);
    let is_last = |index: &usize| done.get(index + 1).is_none_or(|next| next.round != done[*index].round);
    let ends: Vec<usize> = (0..done.len()).filter(is_last).map(|index| index + 1).collect();
    bencher.bench_local(|| {
        let rounds = [0].iter().chain(&ends).filter(|end| search.next(&[], &done[..**end]).is_some()).count();
        assert_eq!(rounds, ends.len());
        search.verdict(&[], &done)
    });
}
