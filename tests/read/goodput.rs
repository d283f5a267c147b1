//! Report of a committed result of `ringmark goodput`.

use std::fs;
use std::path::Path;

use crate::support::golden::assert_golden;
use crate::support::sandbox::{refused, ringmark, succeeds};

#[test]
fn committed_result_is_reported() {
    let result = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/goodput-4-hosts");
    assert_golden("goodput.txt", &succeeds(ringmark("report").arg(&result)));
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("page.html");
    succeeds(ringmark("report").arg(&result).arg("-o").arg(&page));
    let page = fs::read_to_string(page).expect("written");
    // Ten restarts in three runs.
    for step in ["stop: ", "start: ", "load: "] {
        assert_eq!(page.matches(&format!("<title>{step}")).count(), 10, "{step}");
    }
    assert!(page.contains("<title>redo: ") && page.contains("<title>detect: "), "no lost time");
    let hosts = succeeds(ringmark("report --host-mtbf 200d --predict-hosts 64,2048").arg(&result));
    assert_golden("goodput_hosts.txt", hosts.split_once("Other numbers of hosts").expect("predictions").1);
    let sweep = result.with_file_name("llm-2-cores");
    let refusal = refused(ringmark("report --host-mtbf 200d").arg(&sweep), 2);
    assert!(refusal.contains("--predict-hosts and --host-mtbf need a folder of goodput"), "{refusal}");
    let refusal = refused(ringmark("report --warmup 3").arg(&result), 2);
    assert!(refusal.contains("--warmup, --published and --price do not apply to "), "{refusal}");
    let two = refused(ringmark("report").arg(&result).arg(&result), 2);
    assert!(two.contains("contains a result of goodput: report it alone"), "{two}");
}
