// Whole runs: the main job's model, data and progress by closures, texts, verify, profile, audit.
mod common;
use common::*;
use ds::{Format, Output, Progress, Run, Status};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

/// Returns examples/train.json, made small: one layer, six steps.
fn main_job(folder: &Path) -> String {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/train.json");
    let text: String = (0..400).map(|i| format!("def f{i}(x):\n    return x * {} + f{}(x)\n", i % 7, i / 2)).collect();
    std::fs::write(folder.join("text.txt"), text).unwrap();
    let patch = format!(
        r#"{{"model": {{"layers": 1, "hidden": 32, "vocab": 300, "positions": 32}}, "data": {{"paths": ["{0}/text.txt"]}},
            "zero_optimization": {{"offload_optimizer": {{"nvme_path": "{0}/nvme"}}}},
            "scheduler": {{"params": {{"total_num_steps": 6, "warmup_num_steps": 2}}}},
            "run": {{"dir": "{0}/run", "sequence": 32, "steps": 6, "eval_every": 3, "eval_samples": 8, "save_every": 3,
                     "sample_tokens": 0, "threads": 1, "bars": null}}}}"#,
        folder.display()
    );
    ds::merge_config(&std::fs::read_to_string(example).unwrap(), &patch).unwrap()
}

#[test]
fn the_main_job_trains_on_two_ranks_stops_goes_on_and_writes_text() {
    let folder = Scratch::new("main");
    let config = main_job(&folder);
    assert_eq!(ds::communicator(Some(&config), None).unwrap(), "env");
    let (refusals, text) = ds::describe_config(&config, 2, ds::Format::Text).unwrap();
    assert!(refusals == 0 && text.contains("zero_optimization.stage"), "{text}");
    let run = folder.join("run");
    ranks("main", 2, |comm| {
        let mut seen: Vec<Progress> = Vec::new();
        let stopped = Run::new(&config).comm(&comm).progress(|now| {
            seen.push(*now);
            if now.step == 2 {
                now.next_lr = 0.0625;
            }
            now.step < 4
        });
        refused(stopped.train(), Status::User, "after step 4");
        assert_eq!(seen.len(), if comm.rank() == 0 { 4 } else { 0 });
        let resumed = Run::resume(&run, None).comm(&comm).progress(|now| {
            seen.push(*now);
            true
        });
        resumed.train().unwrap();
        if comm.rank() == 0 {
            assert_eq!(seen.iter().map(|p| p.step).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
            assert!(seen[5].loss < seen[0].loss && seen[5].heldout_loss.is_some() && seen[0].heldout_loss.is_none());
            assert!(seen[1].lr != 0.0625 && seen[2].lr == 0.0625 && seen[2].next_lr == 0.0625);
            assert!(seen.iter().all(|p| p.steps == 6 && p.grad_norm > 0.0 && p.tokens_per_second > 0.0));
        }
    });
    assert!(ds::checkpoint_info(&run).unwrap().contains("\"step\": 6"));
    let universal = run.with_extension("universal");
    assert!(ds::convert_checkpoint(&run, &universal, r#"{"to": "universal"}"#).unwrap().contains("\"step\": 6"));
    assert!(universal.join("latest_universal").exists());
    let options = r#"{"tokens": 12, "seed": 3}"#;
    let mut parts = String::new();
    let text = ds::generate(
        None,
        &run,
        Some("def "),
        Some(options),
        Some(&mut |part| {
            parts.push_str(part);
            true
        }),
    )
    .unwrap();
    assert!(!text.is_empty() && text == parts);
    ranks("text", 2, |comm| {
        assert_eq!(ds::generate(Some(&comm), &run, Some("def "), Some(options), None).unwrap(), text);
    });
    let ids = ds::generate(None, &run, None, Some(r#"{"ids": [1, 2, 3], "tokens": 4}"#), None).unwrap();
    assert!(ids.chars().all(|c| c.is_ascii_digit() || " ,[]\n".contains(c)), "{ids}");
    refused(ds::generate(None, &folder.join("nowhere"), Some("a"), None, None), Status::NotFound, "nowhere");
    refused(ds::generate(None, &run, Some("a"), Some(r#"{"token": 3}"#), None), Status::Config, "tokens");
    let cried = std::panic::catch_unwind(|| {
        ds::generate(None, &run, Some("def "), Some(options), Some(&mut |_| panic!("of the text")))
    });
    assert_eq!(*cried.unwrap_err().downcast::<&str>().unwrap(), "of the text");
    let mut calls = 0;
    let stopped = ds::generate(
        None,
        &run,
        Some("def "),
        Some(options),
        Some(&mut |_| {
            calls += 1;
            calls < 3
        }),
    );
    refused(stopped, Status::User, "a callback asked to stop");
    assert_eq!(calls, 3);
}

/// Returns the configuration of a run whose data come from closures.
fn own_data(folder: &Path) -> String {
    format!(
        r#"{{"train_batch_size": 4, "optimizer": {{"type": "AdamW", "params": {{"lr": 0.01}}}},
            "model": {{"family": "gpt", "layers": 1, "hidden": 32, "heads": 2, "vocab": 256, "positions": 16}},
            "run": {{"dir": "{}", "steps": 40, "sequence": 16, "sample_tokens": 0, "threads": 1}}}}"#,
        folder.display()
    )
}

fn fill(batch: ds::Batch<'_>) -> ds::CallbackResult {
    for (i, (token, target)) in batch.tokens.iter_mut().zip(batch.targets).enumerate() {
        *token = 97 + i as i32 % 4;
        *target = 97 + (i as i32 + 1) % 4;
    }
    Ok(())
}

#[test]
fn data_come_from_a_closure_and_a_flag_stops_the_run() {
    let folder = Scratch::new("batch");
    let (run, stop) = (folder.join("run"), AtomicI32::new(0));
    let config = own_data(&run);
    let mut batches = 0;
    let flagged = Run::new(&config).stop(&stop).output(Output::Nothing).batch(|batch| {
        batches += 1;
        fill(batch)
    });
    let flagged = flagged.progress(|now| {
        stop.store(i32::from(now.step == 30), Ordering::Relaxed);
        true
    });
    refused(flagged.train(), Status::User, "the stop flag asked to stop after step 30");
    assert!(batches >= 30);
    stop.store(0, Ordering::Relaxed);
    let mut last = f64::NAN;
    let resumed = Run::resume(&run, None).batch(fill).progress(|now| {
        last = now.loss;
        true
    });
    resumed.train().unwrap();
    assert!(last < 0.5, "{last}");
    let greedy = r#"{"tokens": 10, "temperature": 0}"#;
    assert!(ds::generate(None, &run, Some("abcdab"), Some(greedy), None).unwrap().starts_with("cdabcdabcd"));
    assert_eq!(ds::communicator(Some(r#"{"communicator": "self"}"#), Some(&run)).unwrap(), "self");
}

#[test]
fn errors_and_panics_of_closures_end_a_run_which_can_go_on() {
    let folder = Scratch::new("closures");
    let run = folder.join("run");
    let config = own_data(&run);
    let failing =
        Run::new(&config).batch(|batch| if batch.step < 3 { fill(batch) } else { Err("the disk is gone".into()) });
    refused(failing.train(), Status::User, ": the disk is gone");
    let panic = std::panic::catch_unwind(|| {
        Run::resume(&run, None).batch(|batch| if batch.step < 5 { fill(batch) } else { panic!("of the data") }).train()
    });
    assert_eq!(*panic.unwrap_err().downcast::<&str>().unwrap(), "of the data");
    let panic = std::panic::catch_unwind(|| {
        Run::resume(&run, None).batch(fill).progress(|now| now.step < 8 || panic!("of the progress")).train()
    });
    assert_eq!(*panic.unwrap_err().downcast::<&str>().unwrap(), "of the progress");
    let mut first = 0;
    let resumed = Run::resume(&run, None).batch(fill).progress(|now| {
        first = if first == 0 { now.step } else { first };
        true
    });
    resumed.train().unwrap();
    assert_eq!(first, 9, "the run did not go on after step 8");
    refused(Run::new("{").train(), Status::Config, "");
    refused(Run::resume(&folder.join("none"), None).train(), Status::NotFound, "none");
}

#[test]
fn a_model_is_verified_against_its_recorded_numbers() {
    let outcome = ds::verify(None, &model("gpt2"), Some(r#"{"kinds": ["loss"]}"#), Format::Json).unwrap();
    assert!(outcome.failed == 0 && outcome.report.contains("\"failed\": 0"), "{}", outcome.report);
    ranks("verify", 2, |comm| {
        let options = r#"{"stage": 3, "kinds": ["logits", "loss"]}"#;
        let outcome = ds::verify(Some(&comm), &model("gpt2"), Some(options), Format::Text).unwrap();
        assert!(outcome.report.contains("passed: 2 comparisons"), "{}", outcome.report);
    });
    refused(
        ds::verify(None, &model("gpt2"), Some(r#"{"kind": []}"#), Format::Text),
        Status::Config,
        "did you mean kinds?",
    );
    refused(ds::verify(None, Path::new("nowhere"), None, Format::Text), Status::NotFound, "nowhere/golden.json");
}

#[test]
fn profile_and_audit_report() {
    let config = r#"{"train_micro_batch_size_per_gpu": 2, "model": {"family": "gpt", "layers": 1, "hidden": 32, "heads": 2,
        "vocab": 64, "positions": 16}, "run": {"sequence": 16, "threads": 1}}"#;
    let options = Some(r#"{"steps": 1}"#);
    assert!(ds::profile(None, Some(config), None, options, Format::Json).unwrap().starts_with('{'));
    assert!(ds::profile(None, None, Some(&model("gpt2")), options, Format::Text).unwrap().contains("linear"));
    refused(ds::profile(None, None, None, options, Format::Text), Status::InvalidArgument, "config");
    let audit = ds::audit(None, config, Some(r#"{"steps": 1, "top": 3}"#), Format::Text).unwrap();
    assert!(audit.failed == 0 && audit.report.lines().count() > 3, "{}", audit.report);
}
