// Training, states, save and load, plans: native mode.
mod common;
use common::*;
use ds::{Comm, CommOptions, Engine, EngineOptions, Format, Graph, Plan, Status, View};

#[test]
fn training_lowers_the_loss_and_infers_without_targets() {
    let mut engine = Engine::new(CONFIG, Some(&linear_graph()), EngineOptions::default()).unwrap();
    let (x, target) = batch();
    let first = engine.train_batch(&inputs(&x, &target)).unwrap();
    let mut last = first;
    for _ in 0..50 {
        last = engine.train_batch(&inputs(&x, &target)).unwrap();
    }
    assert!(last < first / 20.0, "{first} {last}");
    assert_eq!(engine.steps(), 51);
    let [given, _] = inputs(&x, &target);
    let y = engine.infer(&[Some(given), None]).unwrap();
    assert_eq!(y.dims().unwrap(), [4, 2]);
    let off = y.data::<f32>().unwrap().iter().zip(&target).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off < 0.5, "{off}");
    assert_eq!(engine.state_names(), ["master", "momentum_buffer", "param", "grad"]);
    let quiet = engine.eval_batch(&inputs(&x, &target)).unwrap();
    assert!(quiet < first / 20.0);
}

#[test]
fn the_losses_of_targets_are_inferred() {
    const TEXTS: &str = r#"{"train_micro_batch_size_per_gpu": 1, "inferred": "token_losses",
        "optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "run": {"sequence": 4},
        "model": {"family": "gpt", "vocab": 8, "layers": 1, "hidden": 8, "heads": 1}}"#;
    let graph = Graph::from_config(TEXTS, 1).unwrap();
    let mut engine = Engine::new(TEXTS, Some(&graph), EngineOptions::default()).unwrap();
    let (tokens, targets) = ([1i32, 2, 3, 4], [2i32, 3, -100, 5]);
    let views = || [View::of(&tokens, &[4]).unwrap(), View::of(&targets, &[4]).unwrap()];
    let [first, second] = views();
    let losses = engine.infer(&[Some(first), Some(second)]).unwrap();
    assert_eq!(losses.dims().unwrap(), [4]);
    let losses = losses.data::<f32>().unwrap();
    assert_eq!(losses[2], 0.0);
    let mean = losses.iter().sum::<f32>() as f64 / 3.0;
    assert!((mean - engine.eval_batch(&views()).unwrap()).abs() < 1e-6);
}

#[test]
fn a_step_in_pieces_has_the_same_bits() {
    let (x, target) = batch();
    let mut whole = Engine::new(CONFIG, Some(&linear_graph()), EngineOptions::default()).unwrap();
    let mut pieces = Engine::new(CONFIG, Some(&linear_graph()), EngineOptions::default()).unwrap();
    for _ in 0..3 {
        let loss = whole.train_batch(&inputs(&x, &target)).unwrap();
        assert_eq!(pieces.forward(&inputs(&x, &target)).unwrap(), loss);
        pieces.backward().unwrap();
        pieces.step().unwrap();
        assert_eq!(whole.read(0, "master").unwrap(), pieces.read(0, "master").unwrap());
    }
}

#[test]
fn initial_values_come_from_a_closure() {
    let options = EngineOptions::default().init(|part| {
        assert_eq!(part.name, ["w", "b"][part.param as usize]);
        for (i, value) in part.values.iter_mut().enumerate() {
            *value = (10 * part.param) as f32 + (part.first + i) as f32;
        }
        Ok(())
    });
    let mut engine = Engine::new(CONFIG, Some(&linear_graph()), options).unwrap();
    assert_eq!(engine.read(0, "master").unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(engine.read(1, "param").unwrap(), [10.0, 11.0]);
    let failing = EngineOptions::default().init(|part| Err(format!("no file for {}", part.name).into()));
    let failed = Engine::new(CONFIG, Some(&linear_graph()), failing);
    let error = refused(failed, Status::User, "for parameter 'w': no file for w");
    assert_eq!(error.tensor.as_deref(), Some("w"));
    let panicking = std::panic::catch_unwind(|| {
        let options = EngineOptions::default().init(|_| panic!("of the closure"));
        Engine::new(CONFIG, Some(&linear_graph()), options)
    });
    assert_eq!(*panicking.err().unwrap().downcast::<&str>().unwrap(), "of the closure");
    assert_eq!(engine.read(1, "master").unwrap(), [10.0, 11.0], "another engine is not touched");
}

#[test]
fn a_closure_is_the_optimizer() {
    const CALLBACK: &str = r#"{"train_batch_size": 4, "optimizer": {"type": "Callback",
        "params": {"lr": 0.05, "momentum": 0.5, "states": ["velocity"]}}}"#;
    const SGD: &str = r#"{"train_batch_size": 4, "optimizer": {"type": "SGD", "params": {"lr": 0.05, "momentum": 0.5}}}"#;
    let options = EngineOptions::default().update(|mut e| {
        for i in 0..e.values.len() {
            let velocity = &mut e.states[0][i];
            *velocity = e.momentum as f32 * *velocity + e.grads[i];
            e.values[i] -= e.lr as f32 * *velocity;
        }
        Ok(())
    });
    let mut own = Engine::new(CALLBACK, Some(&linear_graph()), options).unwrap();
    let mut sgd = Engine::new(SGD, Some(&linear_graph()), EngineOptions::default()).unwrap();
    let (x, target) = batch();
    for _ in 0..3 {
        let (a, b) = (own.train_batch(&inputs(&x, &target)).unwrap(), sgd.train_batch(&inputs(&x, &target)).unwrap());
        assert!((a - b).abs() < 1e-6, "{a} {b}");
    }
    let failing = EngineOptions::default().update(|_| Err("no update".into()));
    let mut engine = Engine::new(CALLBACK, Some(&linear_graph()), failing).unwrap();
    refused(engine.train_batch(&inputs(&x, &target)), Status::User, "no update");
    refused(engine.train_batch(&inputs(&x, &target)), Status::Poisoned, "unusable since");
}

#[test]
fn a_failing_closure_of_one_rank_is_an_error_on_all() {
    ranks("init", 3, |comm| {
        let rank = comm.rank();
        let options = EngineOptions::default().init(move |part| {
            // Only rank 1 fails, at the elements of its own part.
            if rank == 1 {
                return Err("of rank 1".into());
            }
            part.values.fill(1.0);
            Ok(())
        });
        let config = CONFIG.replace("\"stage\": 2", "\"stage\": 3");
        let error = refused(Engine::with_comm(&comm, &config, Some(&linear_graph()), options), Status::User, "");
        assert_eq!(error.message.contains(": of rank 1"), rank == 1, "{error}");
        let mut engine = Engine::with_comm(&comm, &config, Some(&linear_graph()), EngineOptions::default()).unwrap();
        let (x, target) = batch();
        engine.train_batch(&inputs(&x, &target)).unwrap();
    });
}

#[test]
fn what_is_saved_is_loaded_with_the_same_bits_at_another_number_of_ranks() {
    let folder = Scratch::new("save");
    let (x, target) = batch();
    ranks("save", 3, |comm| {
        let mut engine = Engine::with_comm(&comm, CONFIG, Some(&linear_graph()), EngineOptions::default()).unwrap();
        engine.train_batch(&inputs(&x, &target)).unwrap();
        engine.save(&folder, Some(r#"{"client_state": {"epoch": 2}, "keep": 1}"#)).unwrap();
    });
    assert!(ds::checkpoint_info(&folder).unwrap().contains("\"step\": 1"));
    let mut engine = Engine::new(CONFIG, Some(&linear_graph()), EngineOptions::default()).unwrap();
    assert_eq!(engine.load(&folder, None).unwrap(), r#"{"epoch": 2}"#);
    assert_eq!(engine.steps(), 1);
    let saved = engine.read(0, "master").unwrap();
    engine.train_batch(&inputs(&x, &target)).unwrap();
    engine.save(&folder, Some(r#"{"tag": "best", "async": true}"#)).unwrap();
    engine.wait_saved().unwrap();
    engine.write(0, "master", &[0.0; 6]).unwrap();
    refused(engine.load(&folder, Some(r#"{"tag": "worst"}"#)), Status::NotFound, "worst");
    assert_eq!(engine.load(&folder, Some(r#"{"tag": "best"}"#)).unwrap(), "null");
    assert_ne!(engine.read(0, "master").unwrap(), saved);
    let model = Scratch::new("model");
    engine.save_model(&model, None).unwrap();
    let w = engine.read(0, "master").unwrap();
    engine.write(0, "master", &[0.0; 6]).unwrap();
    engine.load_model(&model).unwrap();
    assert_eq!(engine.read(0, "master").unwrap(), w);
}

#[test]
fn a_rank_reads_and_writes_its_own_elements() {
    ranks("local", 3, |comm| {
        let mut engine = Engine::with_comm(&comm, CONFIG, Some(&linear_graph()), EngineOptions::default()).unwrap();
        let own = engine.local_range(0).unwrap();
        let values: Vec<f32> = own.clone().map(|i| i as f32).collect();
        engine.write_local(0, "master", &values).unwrap();
        let (x, target) = batch();
        refused(engine.eval_batch(&inputs(&x, &target)), Status::State, "ds_engine_refresh");
        engine.refresh().unwrap();
        assert_eq!(engine.read(0, "master").unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(engine.read_local(0, "master").unwrap(), values);
        engine.freeze(&[0], true).unwrap();
        engine.train_batch(&inputs(&x, &target)).unwrap();
        assert_eq!(engine.read(0, "master").unwrap(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_ne!(engine.read(1, "master").unwrap(), [0.0, 0.0]);
    });
}

#[test]
fn a_rank_without_data_joins_the_steps_of_the_others() {
    ranks("join", 2, |comm| {
        let mut engine = Engine::with_comm(&comm, CONFIG, Some(&linear_graph()), EngineOptions::default()).unwrap();
        let (x, target) = batch();
        engine.train_batch(&inputs(&x, &target)).unwrap();
        if comm.rank() == 0 {
            engine.train_batch(&inputs(&x, &target)).unwrap();
            engine.train_batch(&inputs(&x, &target)).unwrap();
        }
        assert_eq!(engine.join().unwrap(), if comm.rank() == 0 { 0 } else { 2 });
        assert_eq!(engine.steps(), 3);
    });
}

#[test]
fn groups_of_parameters_have_values_of_their_own() {
    let mut engine = Engine::new(CONFIG, Some(&linear_graph()), EngineOptions::default()).unwrap();
    let b = engine.param("b").unwrap();
    assert_eq!(engine.add_group(&[b], r#"{"lr": 0}"#).unwrap(), 1);
    let (x, target) = batch();
    engine.train_batch(&inputs(&x, &target)).unwrap();
    assert_eq!(engine.read(b, "master").unwrap(), [0.0, 0.0]);
    engine.set("param_groups[1].lr", 0.25).unwrap();
    assert_eq!(engine.get("param_groups[1].lr").unwrap(), 0.25);
    assert_eq!(engine.get("lr").unwrap(), 0.5);
}

#[test]
fn graphs_and_plans_have_texts() {
    let mut graph = linear_graph();
    let text = graph.print().unwrap();
    assert_eq!(Graph::parse(&text).unwrap().print().unwrap(), text);
    let plans: Vec<Plan> = (0..2).map(|rank| Plan::new(CONFIG, Some(&graph), rank, 2).unwrap()).collect();
    let both: Vec<&Plan> = plans.iter().collect();
    assert!(Plan::picture(&both).unwrap().starts_with("<svg"));
    assert!(Plan::certificate(&both).unwrap().len() > 1000);
    assert!(plans[1].print().unwrap().len() > 100 && plans[1].report(Format::Json).unwrap().starts_with('{'));
    let grads = graph.grad(ds::Value(5), &[ds::Value(2), ds::Value(0)]).unwrap();
    assert!(grads.iter().all(|g| g.is_some()));
    let folder = Scratch::new("trace");
    let options = EngineOptions { trace: true, threads: 1, ..EngineOptions::default() };
    let mut engine = Engine::new(CONFIG, Some(&linear_graph()), options).unwrap();
    let (x, target) = batch();
    engine.train_batch(&inputs(&x, &target)).unwrap();
    engine.trace(&folder.join("trace.json")).unwrap();
    assert!(std::fs::read_to_string(folder.join("trace.json")).unwrap().contains("traceEvents"));
    assert!(engine.plan_print().unwrap().len() > 100);
    assert!(engine.plan_report(Format::Json).unwrap().starts_with('{'));
    assert!(ds::env_report(Format::Text).unwrap().len() > 10 && ds::version().contains('.'));
}

#[test]
fn an_engine_moves_to_another_thread_with_a_communicator_of_its_own() {
    let comm = Comm::join("self", &CommOptions::default()).unwrap();
    let engine = Engine::with_comm(comm, CONFIG, Some(&linear_graph()), EngineOptions::default()).unwrap();
    let steps = std::thread::spawn(move || {
        let mut engine = engine;
        let (x, target) = batch();
        engine.train_batch(&inputs(&x, &target)).unwrap();
        engine.group().barrier().unwrap();
        engine.steps()
    });
    assert_eq!(steps.join().unwrap(), 1);
}

#[test]
fn two_engines_train_in_two_threads_at_once() {
    let train = || {
        let mut engine = Engine::new(CONFIG, Some(&linear_graph()), EngineOptions::default()).unwrap();
        let (x, target) = batch();
        for _ in 0..200 {
            engine.train_batch(&inputs(&x, &target)).unwrap();
        }
        engine.read(0, "master").unwrap()
    };
    let other = std::thread::spawn(train);
    assert_eq!(train(), other.join().unwrap());
}

fn sends<T: Send>() {}
fn shares<T: Sync>() {}

#[test]
fn handles_move_between_threads_as_the_header_allows() {
    sends::<Comm>();
    sends::<ds::Aborter>();
    shares::<ds::Aborter>();
    sends::<ds::Work<f32>>();
    shares::<ds::Work<f32>>();
    sends::<ds::Tensor>();
    sends::<ds::dlpack::Managed>();
    sends::<Graph>();
    sends::<Plan>();
    sends::<Engine>();
    sends::<Engine<Comm>>();
    sends::<ds::Error>();
    shares::<ds::Error>();
}

// Code that must not compile: it shares a handle that only one thread may use at a time.
macro_rules! not {
    ($trait:ident, $type:ty) => {{
        // If the type has the trait, the name is ambiguous, which is an error.
        trait Either<A> {
            fn chosen() {}
        }
        struct Has;
        impl<T: ?Sized> Either<()> for T {}
        impl<T: ?Sized + $trait> Either<Has> for T {}
        <$type as Either<_>>::chosen();
    }};
}

#[test]
fn handles_of_one_thread_are_not_shared() {
    not!(Sync, Comm);
    not!(Sync, ds::Tensor);
    not!(Sync, Graph);
    not!(Sync, Plan);
    not!(Sync, Engine);
    not!(Send, ds::View<'static>);
    not!(Send, Engine<&'static Comm>);
    not!(Send, ds::Lease<'static, &'static Comm>);
    not!(Send, ds::Stream);
    not!(Send, ds::DeviceTensor);
}
