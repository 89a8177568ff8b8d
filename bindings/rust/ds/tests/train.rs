// The scenarios of every wrapper: training, delegate mode, collectives, save and load, errors, handles in any order.
use ds::{Comm, CommOptions, Engine, EngineOptions, Format, Graph, Plan, Progress, ReduceOp, Status, Tensor, View};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

const CONFIG: &str = r#"{"train_micro_batch_size_per_gpu": 4, "gradient_clipping": 0,
    "optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "zero_optimization": {"stage": 2}}"#;

fn scratch(name: &str) -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("ds-rust-{}-{name}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// y = x * w + b with a mean squared error; output 1 is y.
fn linear_graph() -> Graph {
    let mut graph = Graph::new("linear", 4).unwrap();
    let x = graph.input::<f32>("x", &[None, Some(3)]).unwrap();
    let target = graph.input::<f32>("target", &[None, Some(2)]).unwrap();
    let w = graph.param("w", &[2, 3], "normal", 0.1).unwrap();
    let b = graph.param("b", &[2], "zeros", 0.0).unwrap();
    let y = graph.op("linear", &[x, w, b], None).unwrap();
    let loss = graph.op("mse", &[y, target], None).unwrap();
    assert_eq!(graph.dims(y).unwrap(), [None, Some(2)]);
    graph.output("loss", loss).unwrap();
    graph.output("prediction", y).unwrap();
    graph
}

fn batch() -> (Vec<f32>, Vec<f32>) {
    let x: Vec<f32> = (0..12).map(|i| (i % 5) as f32 * 0.25 - 0.5).collect();
    let target = x.chunks(3).flat_map(|r| [r[0] - r[1], 0.5 * r[2] + 1.0]).collect();
    (x, target)
}

/// Runs `body` as every rank of a group of threads.
fn ranks(name: &str, size: i32, body: impl Fn(&Comm) + Sync) {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let url = format!("threads://rust-{name}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    std::thread::scope(|threads| {
        for rank in 0..size {
            let (url, body) = (&url, &body);
            threads.spawn(move || {
                let comm = Comm::join(url, &CommOptions { rank, size, ..CommOptions::default() }).unwrap();
                body(&comm);
            });
        }
    });
}

#[test]
fn training_lowers_the_loss_and_infers_without_targets() {
    let mut engine = Engine::new(None, CONFIG, Some(&linear_graph()), &EngineOptions::default()).unwrap();
    let (x, target) = batch();
    let first = engine.train_batch(&[View::of(&x, &[4, 3]).unwrap(), View::of(&target, &[4, 2]).unwrap()]).unwrap();
    let mut last = first;
    for _ in 0..50 {
        last = engine.train_batch(&[View::of(&x, &[4, 3]).unwrap(), View::of(&target, &[4, 2]).unwrap()]).unwrap();
    }
    assert!(last < first / 20.0, "{first} {last}");
    assert_eq!(engine.steps(), 51);
    let y = engine.infer(&[Some(View::of(&x, &[4, 3]).unwrap()), None]).unwrap();
    assert_eq!(y.dims().unwrap(), [4, 2]);
    let off = y.data::<f32>().unwrap().iter().zip(&target).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off < 0.5, "{off}");
    assert_eq!(engine.state_names(), ["master", "momentum_buffer", "param", "grad"]);
}

#[test]
fn a_delegate_host_trains_with_gradients_of_its_own_evaluates_and_saves() {
    let folder = scratch("delegate");
    ranks("delegate", 3, |comm| {
        let mut engine = Engine::new(Some(comm), CONFIG, None, &EngineOptions::default()).unwrap();
        let p = engine.add_param("p", &[5]).unwrap();
        assert_eq!(engine.gather(&[p]).err().unwrap().status, Status::State);
        engine.start().unwrap();
        engine.write(p, "master", &[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let mut lease = engine.gather(&[p]).unwrap();
        assert_eq!(lease.values(p).unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0]);
        lease.write_grad(p, |grad| grad.fill(comm.rank() as f32)).unwrap(); // the mean over ranks 0, 1, 2 is 1
        let again = [0.0f32; 5];
        assert_eq!(lease.grad_ready(p, &View::of(&again, &[5]).unwrap()).unwrap_err().status, Status::State);
        lease.release().unwrap();
        engine.backward().unwrap();
        engine.step().unwrap();
        assert_eq!(engine.read(p, "master").unwrap(), [0.5, 1.5, 2.5, 3.5, 4.5]);
        engine.evaluate(true).unwrap();
        assert_eq!(engine.backward().unwrap_err().status, Status::State);
        let sum = engine.gather(&[p]).unwrap().with_values(p, |values| values.iter().sum::<f32>()).unwrap();
        assert_eq!(sum, 12.5, "evaluation, whose lease ended when it was dropped");
        engine.evaluate(false).unwrap();
        engine.save(&folder, Some(r#"{"client_state": {"epoch": 2}}"#)).unwrap();
        engine.write(p, "master", &[0.0; 5]).unwrap();
        assert_eq!(engine.load(&folder).unwrap(), r#"{"epoch": 2}"#);
        assert_eq!(engine.read(p, "master").unwrap(), [0.5, 1.5, 2.5, 3.5, 4.5]);
    });
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn collectives() {
    ranks("collectives", 3, |comm| {
        let rank = comm.rank();
        let mut data = [rank as f32, 1.0];
        comm.all_reduce(&mut data).unwrap();
        assert_eq!(data, [3.0, 3.0]);
        let mut most = [rank as i64 * 10];
        comm.all_reduce_by(&mut most, ReduceOp::Max).unwrap();
        assert_eq!(most, [20]);
        assert_eq!(comm.all_gather(&[rank as i32]).unwrap(), [0, 1, 2]);
        let to: Vec<u8> = (0..3).map(|r| (rank * 3 + r) as u8).collect();
        assert_eq!(comm.all_to_all(&to).unwrap(), [rank as u8, rank as u8 + 3, rank as u8 + 6]);
        let mut word = [if rank == 1 { 7.5f64 } else { 0.0 }];
        comm.broadcast(&mut word, 1).unwrap();
        assert_eq!(word, [7.5]);
        let mut got = [0u8; 4];
        match rank {
            0 => comm.send(b"data", 2).unwrap(),
            2 => comm.receive(&mut got, 0).unwrap(),
            _ => {}
        }
        assert!(rank != 2 || &got == b"data");
        let part = comm.split(if rank == 0 { None } else { Some(0) }, 0).unwrap();
        assert_eq!(part.map(|p| p.size()), if rank == 0 { None } else { Some(2) });
        comm.barrier().unwrap();
        assert_eq!(comm.all_to_all(&[0u8; 4]).unwrap_err().status, Status::InvalidArgument);
        assert!(comm.flight_record(Format::Json).unwrap().contains("barrier"));
    });
}

#[test]
fn an_abort_from_another_thread_ends_what_waits() {
    ranks("abort", 2, |comm| {
        if comm.rank() == 0 {
            let aborter = comm.aborter();
            std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(50));
                aborter.abort("enough").unwrap();
            });
        } else {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
        let error = comm.barrier().unwrap_err();
        assert_eq!(error.status, Status::Comm);
        assert!(error.message.contains("enough"), "{error}");
    });
    let gone = Comm::join("self", &CommOptions::default()).unwrap().aborter();
    gone.abort("nobody is there").unwrap();
}

#[test]
fn errors_say_what_they_are_about_and_harm_nothing() {
    let wrong = r#"{"train_micro_batch_size_per_gpu": 4, "optimizer": {"params": {"lr": -1}}}"#;
    let error = Engine::new(None, wrong, Some(&linear_graph()), &EngineOptions::default()).err().unwrap();
    assert_eq!((error.status, error.key.as_deref()), (Status::Config, Some("optimizer.params.lr")));
    let mut engine = Engine::new(None, CONFIG, Some(&linear_graph()), &EngineOptions::default()).unwrap();
    let (x, target) = batch();
    let refused = engine.train_batch(&[View::of(&x, &[4, 3]).unwrap(), View::of(&x, &[6, 2]).unwrap()]).unwrap_err();
    assert_eq!(refused.status, Status::InvalidArgument);
    assert!(refused.message.contains("rows"), "{refused}");
    let ids = [1i32; 12];
    let refused = engine.train_batch(&[View::of(&ids, &[4, 3]).unwrap(), View::of(&target, &[4, 2]).unwrap()]).unwrap_err();
    assert!(refused.message.contains("'x' must be f32, got i32"), "{refused}");
    assert_eq!(engine.step().unwrap_err().status, Status::State);
    assert_eq!(engine.param("bb").unwrap_err().status, Status::NotFound);
    assert_eq!(engine.read(0, "mastr").unwrap_err().status, Status::InvalidArgument);
    assert_eq!(engine.write(1, "master", &[0.0; 3]).unwrap_err().tensor.as_deref(), Some("b"));
    assert_eq!(engine.load(&scratch("none")).unwrap_err().status, Status::NotFound);
    assert!(View::of(&x, &[5, 3]).is_err() && Tensor::copy_of(&x, &[5]).is_err() && Graph::new("a\0b", 1).is_err());
    assert!(Tensor::zeros::<f32>(&[2]).unwrap().data::<i32>().is_err());
    let nan = [f32::NAN; 12];
    engine.train_batch(&[View::of(&nan, &[4, 3]).unwrap(), View::of(&target, &[4, 2]).unwrap()]).unwrap();
    assert!(engine.last_step().unwrap().skipped && !engine.skip_reason().unwrap().is_empty());
    engine.train_batch(&[View::of(&x, &[4, 3]).unwrap(), View::of(&target, &[4, 2]).unwrap()]).unwrap();
    assert_eq!(engine.last_step().unwrap().updates, 1);
}

#[test]
fn groups_of_parameters_have_values_of_their_own() {
    let mut engine = Engine::new(None, CONFIG, Some(&linear_graph()), &EngineOptions::default()).unwrap();
    let b = engine.param("b").unwrap();
    assert_eq!(engine.add_group(&[b], r#"{"lr": 0}"#).unwrap(), 1);
    let (x, target) = batch();
    engine.train_batch(&[View::of(&x, &[4, 3]).unwrap(), View::of(&target, &[4, 2]).unwrap()]).unwrap();
    assert_eq!(engine.read(b, "master").unwrap(), [0.0, 0.0]);
    engine.set("param_groups[1].lr", 0.25).unwrap();
    assert_eq!(engine.get("param_groups[1].lr").unwrap(), 0.25);
    assert_eq!(engine.get("lr").unwrap(), 0.5);
}

#[test]
fn handles_end_in_any_order() {
    let comm = Comm::join("self", &CommOptions::default()).unwrap();
    let graph = linear_graph();
    let plan = Plan::new(CONFIG, Some(&graph), 1, 4).unwrap();
    let engine = Engine::new(Some(&comm), CONFIG, Some(&graph), &EngineOptions::default()).unwrap();
    drop(graph);
    assert!(plan.report(Format::Json).unwrap().starts_with('{'));
    assert_eq!(engine.param_count(), 2);
    drop(engine);
    drop(plan);
    comm.barrier().unwrap();
}

#[test]
fn a_panic_in_a_callback_goes_on_behind_the_run() {
    let folder = scratch("run");
    std::fs::write(folder.join("text.txt"), "to train or not to train ".repeat(400)).unwrap();
    let config = format!(
        r#"{{"train_micro_batch_size_per_gpu": 2, "model": {{"family": "gpt", "layers": 1, "hidden": 32, "heads": 2}},
            "data": {{"paths": ["{0}/text.txt"]}}, "run": {{"dir": "{0}/run", "eval_batches": 1, "steps": 5, "sequence": 16, "threads": 1}}}}"#,
        folder.display()
    );
    let mut seen: Vec<Progress> = Vec::new();
    ds::train(None, &config, &mut |progress| {
        seen.push(*progress);
        true
    })
    .unwrap();
    assert_eq!(seen.len(), 5);
    let other = ds::merge_config(&config, &format!(r#"{{"run": {{"dir": "{}/two"}}}}"#, folder.display())).unwrap();
    let stopped = ds::train(None, &other, &mut |progress| progress.step < 2).unwrap_err();
    assert_eq!(stopped.status, Status::User);
    let third = ds::merge_config(&config, &format!(r#"{{"run": {{"dir": "{}/three"}}}}"#, folder.display())).unwrap();
    let panic = std::panic::catch_unwind(|| ds::train(None, &third, &mut |_| panic!("of the callback")));
    assert_eq!(*panic.unwrap_err().downcast::<&str>().unwrap(), "of the callback");
    std::fs::remove_dir_all(folder).unwrap();
}
