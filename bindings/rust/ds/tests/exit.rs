// Handles of every kind, dropped in random order, and some that are still alive when the thread or process ends.
mod common;
use common::*;
use ds::{Collective, Comm, CommOptions, Engine, EngineOptions, Plan, ReduceOp, Tensor};
use std::any::Any;
use std::cell::RefCell;
use std::process::Command;

thread_local! {
    static KEPT: RefCell<Vec<Box<dyn Any>>> = RefCell::new(Vec::new());
}

fn a_handle_of_every_kind() -> Vec<Box<dyn Any>> {
    let comm = || Comm::join("self", &CommOptions::default()).unwrap();
    let graph = linear_graph();
    let whole = comm();
    let part = whole.split(Some(0), 0).unwrap().unwrap();
    let work = whole.start(Collective::all_reduce(vec![vec![1.0f32; 50_000]], ReduceOp::Sum)).unwrap();
    let mut owner = Engine::with_comm(comm(), CONFIG, Some(&graph), EngineOptions::default()).unwrap();
    let (x, target) = batch();
    owner.train_batch(&inputs(&x, &target)).unwrap();
    let [given, _] = inputs(&x, &target);
    let inferred = owner.infer(&[Some(given), None]).unwrap();
    let mut host = Engine::new(CONFIG, None, EngineOptions::default().init(|_| Ok(()))).unwrap();
    let p = host.add_param("p", &[3]).unwrap();
    host.start().unwrap();
    std::mem::forget(host.gather(&[p]).unwrap());
    vec![
        Box::new(Plan::new(CONFIG, Some(&graph), 0, 1).unwrap()),
        Box::new(graph),
        Box::new(whole.aborter()),
        Box::new(whole),
        Box::new(part),
        Box::new(work),
        Box::new(owner),
        Box::new(inferred.into_dlpack().unwrap()),
        Box::new(host),
        Box::new(Tensor::from_vec(vec![1i32, 2], &[2]).unwrap()),
    ]
}

/// Drops some handles, leaves some to the end of the thread, and forgets the rest.
fn end_in_any_order(seed: u64) {
    let dice = Dice::new(seed);
    let mut handles = a_handle_of_every_kind();
    while !handles.is_empty() {
        let handle = handles.swap_remove(dice.below(handles.len()));
        match dice.below(4) {
            0 => KEPT.with(|kept| kept.borrow_mut().push(handle)),
            1 => std::mem::forget(handle),
            _ => drop(handle),
        }
    }
}

#[test]
fn handles_end_in_any_order() {
    for seed in 0..30 {
        std::thread::spawn(move || end_in_any_order(seed)).join().unwrap();
    }
}

#[test]
fn a_process_ends_with_handles_that_are_alive() {
    if let Ok(seed) = std::env::var("DS_RUST_EXIT") {
        let seed = seed.parse().unwrap();
        end_in_any_order(seed);
        // The thread either returns or ends the process.
        if seed % 2 == 0 {
            std::process::exit(0);
        }
        return;
    }
    for seed in 0..12 {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "a_process_ends_with_handles_that_are_alive"]).env("DS_RUST_EXIT", seed.to_string());
        let out = child.output().unwrap();
        assert!(out.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&out.stderr));
    }
}
