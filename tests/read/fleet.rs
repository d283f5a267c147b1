//! Report of the journal of a simulated fleet.

use std::fs;
use std::path::Path;

use ringmark_core::accept::simulation::{Defect, SimulatedFleet};
use ringmark_core::accept::{Criteria, Header, JOURNAL, Line, Search, VERDICT, Verdict};

use crate::support::golden::assert_golden;
use crate::support::sandbox::{refused, ringmark, succeeds};

/// Writes the files of an acceptance of eight hosts, of which one is slow, and two have a slow link; returns the verdict.
fn write(folder: &Path, is_interrupted: bool) -> Verdict {
    let defects = vec![Defect::SlowHost { host: 4, factor: 0.7 }, Defect::BadLink { hosts: [1, 5], factor: 0.4 }];
    let mut fleet = SimulatedFleet { defects, ..SimulatedFleet::new(8, 3) };
    for (index, host) in fleet.hosts.iter_mut().enumerate() {
        (host.ranks, host.switch) = (2, Some(format!("leaf{}", index / 4 + 1)));
    }
    let search = Search::new(fleet.hosts.clone(), Criteria::default(), 1);
    let (verdict, measurements) = fleet.accept(&search);
    let command = ["ringmark", "accept", "--out", "fleet"].map(str::to_owned).to_vec();
    let header = Header::new(command, "0.1.0".to_owned(), fleet.hosts.clone(), Criteria::default(), 1);
    let last = if is_interrupted { 2 } else { u32::MAX };
    let measured = measurements.into_iter().filter(|measurement| measurement.round <= last).map(Line::Measurement);
    let text: String = [Line::Header(header)].into_iter().chain(measured).map(|line| line.text()).collect();
    fs::create_dir_all(folder).expect("created");
    fs::write(folder.join(JOURNAL), text).expect("written");
    fs::write(folder.join(VERDICT), serde_json::to_string(&verdict).expect("JSON")).expect("written");
    verdict
}

#[test]
fn report_has_defects_first_then_hosts_and_pairs() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("fleet");
    let verdict = write(&out, false);
    let text = succeeds(ringmark("report").arg(&out));
    assert_golden("fleet.txt", &text);
    let page = folder.path().join("fleet.html");
    succeeds(ringmark("report").arg(&out).arg("-o").arg(&page));
    let page = fs::read_to_string(page).expect("written");
    assert!(
        page.contains("<h2>8 hosts: 1 unfit, 1 link not fit</h2>") && !page.contains("fleet: unfit"),
        "the verdict is repeated"
    );
    assert!(!page.contains("</svg> failed</li>"), "no pair failed");
    assert!(!page.contains("`fit`") && page.contains("Fit means"), "a literal backtick");
    // The pair is drawn on both sides of the diagonal, with an outline.
    assert_eq!(page.matches("class=\"area critical\"").count(), 2);
    assert_eq!(page.matches("<g class=\"transfer\">").count(), 2, "more than half slower");
    let long = succeeds(&mut ringmark("report results/accept-8-hosts/several"));
    assert!(long.lines().all(|line| line.chars().count() <= 120), "{long}");
    assert!(long.contains("; without accept-2, "), "the slower end of the link: {long}");
    let json = succeeds(ringmark("report --json").arg(&out));
    assert_eq!(serde_json::from_str::<Verdict>(&json).expect("a verdict"), verdict);
}

#[test]
fn report_lists_the_hosts_to_drain() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("fleet");
    write(&out, false);
    assert_eq!(succeeds(ringmark("report").arg(&out).arg("--drain-list")), "n0005\nn0006\n", "the list alone");
    // After a job of Slurm, in a file beside the report.
    let journal = fs::read_to_string(out.join(JOURNAL)).expect("written");
    fs::write(out.join(JOURNAL), journal.replacen("\"seed\":1", "\"seed\":1,\"slurm\":true", 1)).expect("written");
    let file = folder.path().join("drain.sh");
    let report = succeeds(ringmark("report").arg(&out).arg("--drain-list").arg(&file));
    assert!(report.contains("1 unfit"), "{report}");
    let commands = fs::read_to_string(file).expect("written");
    assert!(commands.lines().all(|line| line.starts_with("scontrol update nodename=n000")), "{commands}");
    let error = refused(ringmark("report").arg(&out).args(["--drain-list", "--json"]), 2);
    assert!(error.contains("both need the standard output"), "{error}");
    let error = refused(&mut ringmark("report results/suite-2-cores --drain-list"), 2);
    assert!(error.contains("--drain-list needs a folder of accept"), "{error}");
}

#[test]
fn interrupted_run_has_a_verdict_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("fleet");
    write(&out, true);
    let text = succeeds(ringmark("report").arg(&out));
    assert!(text.contains("not complete: ") && text.contains("2 rounds"), "{text}");
}

#[test]
fn fleet_is_reported_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("fleet");
    write(&out, false);
    let error = refused(ringmark("report").arg(&out).arg("results/suite-2-cores"), 2);
    assert!(error.contains("fleet contains an acceptance: report it alone"), "{error}");
    let error = refused(ringmark("report --warmup 3").arg(&out), 2);
    assert!(error.contains("do not apply to "), "{error}");
}
