//! The second process of a measurement under `forkless run`, without `run`: what it answers.

use forkless_bench::suites::SUITES;
use forkless_bench::under_run::serve;
use serde_json::{Value, json};

#[test]
fn the_second_process_answers_each_turn_with_the_arms_series() {
    let setup = json!({
        "pages": "base", "allocated": 1 << 20, "used": 1 << 20, "program": b"/usr/bin/true", "overhead": 0.0,
    });
    let input =
        format!("{}\n{}\n", json!({"suite": "memory", "setup": setup}), json!({"settle": 1, "counted": 3}));
    let mut output = Vec::new();
    serve(input.as_bytes(), &mut output, SUITES).unwrap();
    let text = String::from_utf8(output).unwrap();
    let answers: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [ready, series] = answers.as_slice() else { panic!("{answers:?}") };
    assert_eq!(ready, "Ready");
    let series: Vec<usize> =
        series["Series"].as_array().unwrap().iter().map(|one| one.as_array().unwrap().len()).collect();
    assert_eq!(series, [3, 3, 1, 1, 1]);
}

#[test]
fn a_part_that_no_suite_has_is_refused_in_words() {
    let mut output = Vec::new();
    serve(&b"{\"suite\": \"spawn\", \"setup\": {}}\n"[..], &mut output, SUITES).unwrap();
    let answer: Value = serde_json::from_slice(&output).unwrap();
    assert!(answer["Failed"].as_str().unwrap().contains("spawn"), "{answer}");
}
