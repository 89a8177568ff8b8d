// Bad input gives an Err with the message of libds, and the object stays usable.
mod common;
use common::*;
use ds::{Engine, EngineOptions, Graph, LogLevel, Status, Tensor, View};
use std::sync::{Arc, Mutex};

#[test]
fn errors_say_what_they_are_about_and_harm_nothing() {
    let wrong = r#"{"train_micro_batch_size_per_gpu": 4, "optimizer": {"params": {"lr": -1}}}"#;
    let failed = Engine::new(wrong, Some(&linear_graph()), EngineOptions::default());
    assert_eq!(refused(failed, Status::Config, "lr").key.as_deref(), Some("optimizer.params.lr"));
    let mut engine = Engine::new(CONFIG, Some(&linear_graph()), EngineOptions::default()).unwrap();
    let (x, target) = batch();
    let [x43, t42] = inputs(&x, &target);
    refused(engine.train_batch(&[x43]), Status::InvalidArgument, "2 inputs, got 1");
    let other = View::of(&x, &[6, 2]).unwrap();
    refused(engine.train_batch(&[View::of(&x, &[4, 3]).unwrap(), other]), Status::InvalidArgument, "rows");
    let ids = [1i32; 12];
    let ids = View::of(&ids, &[4, 3]).unwrap();
    refused(engine.train_batch(&[ids, t42]), Status::InvalidArgument, "'x' must be f32, got i32");
    refused(engine.step(), Status::State, "");
    refused(engine.backward(), Status::State, "");
    refused(engine.gather(&[0]), Status::State, "delegate");
    refused(engine.param("bb"), Status::NotFound, "bb");
    refused(engine.read(0, "mastr"), Status::InvalidArgument, "mastr");
    refused(engine.read(7, "master"), Status::InvalidArgument, "7");
    let error = refused(engine.write(1, "master", &[0.0; 3]), Status::InvalidArgument, "3");
    assert_eq!(error.tensor.as_deref(), Some("b"));
    refused(engine.load(&Scratch::new("none"), None), Status::NotFound, "none");
    refused(engine.set("lr", -1.0), Status::InvalidArgument, "lr");
    refused(engine.get("speed"), Status::NotFound, "speed");
    refused(engine.infer(&[None, None]), Status::InvalidArgument, "'x', must not be NULL");
    refused(engine.trace("t.json".as_ref()), Status::State, "trace");
    refused(Graph::new("a\0b", 1), Status::InvalidArgument, "NUL");
    refused(Graph::parse("nonsense"), Status::InvalidArgument, "");
    let mut graph = Graph::new("g", 4).unwrap();
    let v = graph.input::<f32>("x", &[None, Some(3)]).unwrap();
    refused(graph.op("relux", &[v], None), Status::InvalidArgument, "did you mean 'relu'?");
    refused(graph.op("linear", &[v, v], None), Status::InvalidArgument, "");
    refused(graph.output("o", ds::Value(99)), Status::InvalidArgument, "99");
    assert_eq!(engine.steps(), 0);
    engine.train_batch(&inputs(&x, &target)).unwrap();
    assert_eq!(engine.last_step().unwrap().updates, 1);
}

#[test]
fn nan_skips_the_step_and_names_the_tensor() {
    let mut engine = Engine::new(CONFIG, Some(&linear_graph()), EngineOptions::default()).unwrap();
    let (x, target) = batch();
    let before = engine.read(0, "master").unwrap();
    engine.train_batch(&inputs(&[f32::NAN; 12], &target)).unwrap();
    assert!(engine.last_step().unwrap().skipped && engine.skip_reason().unwrap().contains("loss"));
    assert_eq!(engine.read(0, "master").unwrap(), before);
    engine.train_batch(&inputs(&x, &target)).unwrap();
    assert_eq!((engine.last_step().unwrap().updates, engine.skip_reason().unwrap()), (1, String::new()));
}

#[test]
fn every_message_arrives_with_its_thread() {
    let failing = |at: usize| {
        for _ in 0..200 {
            let error = Tensor::zeros::<f32>(&vec![1; 9 + at]).err().unwrap();
            assert!(error.message.ends_with(&format!("got {}", 9 + at)), "{error}");
        }
    };
    std::thread::scope(|threads| (0..3).for_each(|at| drop(threads.spawn(move || failing(at)))));
}

#[test]
fn log_lines_go_to_a_closure() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let kept = lines.clone();
    ds::set_log(move |level, line| {
        if line.contains("plan ") {
            kept.lock().unwrap().push((level, line.to_string()));
        }
    })
    .unwrap();
    let make = || Engine::new(CONFIG, Some(&linear_graph()), EngineOptions::default());
    drop(make().unwrap());
    assert!(lines.lock().unwrap().iter().any(|(level, line)| *level == LogLevel::Debug && line.contains("rank 0 of 1")));
    let here = std::thread::current().id();
    ds::set_log(move |_, _| if std::thread::current().id() == here { panic!("of the log") }).unwrap();
    // A line may come to the closure on the thread of another test, which is inside a call at that moment.
    let panic = (0..50).find_map(|_| std::panic::catch_unwind(make).err());
    assert_eq!(*panic.unwrap().downcast::<&str>().unwrap(), "of the log");
    ds::reset_log().unwrap();
    drop(make().unwrap());
}
