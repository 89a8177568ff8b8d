// Operations that a program computes.
mod common;
use common::*;
use ds::{CallbackResult, CustomOp, CustomOutput, Engine, EngineOptions, Graph, Status, Value, View, ViewMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

/// y = scale * x, with a counter of drops.
struct Scale {
    by: f32,
    differentiable: bool,
    fails_at: usize,
    calls: AtomicUsize,
    ended: Arc<AtomicUsize>,
}

impl Drop for Scale {
    fn drop(&mut self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

impl CustomOp for Scale {
    fn forward(&self, inputs: &[View<'_>], outputs: &mut [ViewMut<'_>]) -> CallbackResult {
        match self.calls.fetch_add(1, Ordering::Relaxed) + 1 {
            call if call < self.fails_at => {}
            call if call == self.fails_at => return Err("out of ideas".into()),
            _ => panic!("of the operation"),
        }
        assert_eq!(inputs[0].dims()?, outputs[0].dims()?);
        let x = inputs[0].data::<f32>()?;
        outputs[0].data_mut::<f32>()?.iter_mut().zip(x).for_each(|(y, x)| *y = self.by * x);
        Ok(())
    }

    fn is_differentiable(&self) -> bool {
        self.differentiable
    }

    fn backward(
        &self,
        _: &[View<'_>],
        outputs: &[View<'_>],
        output_grads: &[Option<View<'_>>],
        input_grads: &mut [Option<ViewMut<'_>>],
    ) -> CallbackResult {
        let (dy, dx) = match (&output_grads[0], &mut input_grads[0]) {
            (Some(dy), Some(dx)) => (dy, dx),
            _ => return Ok(()),
        };
        assert_eq!(outputs[0].dims()?, dx.dims()?);
        dx.data_mut::<f32>()?.iter_mut().zip(dy.data::<f32>()?).for_each(|(dx, dy)| *dx = self.by * dy);
        Ok(())
    }
}

fn scale(by: f32, differentiable: bool, fails_at: usize, ended: &Arc<AtomicUsize>) -> Scale {
    Scale { by, differentiable, fails_at, calls: AtomicUsize::new(0), ended: ended.clone() }
}

/// Returns the linear graph with its prediction scaled by `scaled`, which adds a custom operation or one of libds.
fn graph_with(scaled: impl FnOnce(&mut Graph, Value) -> ds::Result<Value>) -> Graph {
    let mut graph = Graph::new("linear", 4).unwrap();
    let x = graph.input::<f32>("x", &[None, Some(3)]).unwrap();
    let target = graph.input::<f32>("target", &[None, Some(2)]).unwrap();
    let w = graph.param("w", &[2, 3], "normal", 0.1).unwrap();
    let b = graph.param("b", &[2], "zeros", 0.0).unwrap();
    let y = graph.op("linear", &[x, w, b], None).unwrap();
    let z = scaled(&mut graph, y).unwrap();
    let loss = graph.op("mse", &[z, target], None).unwrap();
    graph.output("loss", loss).unwrap();
    graph.output("prediction", z).unwrap();
    graph
}

fn custom(op: Scale) -> Graph {
    graph_with(|graph, y| graph.custom("my.scale", op, &[y], &[CustomOutput::computed(&[None, Some(2)])]))
}

#[test]
fn a_custom_operation_trains_as_the_one_of_libds_and_ends_once() {
    let ended = Arc::new(AtomicUsize::new(0));
    let graph = custom(scale(2.0, true, usize::MAX, &ended));
    assert!(graph.print().unwrap().contains("my.scale"));
    refused(Graph::parse(&graph.print().unwrap()), Status::InvalidArgument, "");
    let mut own = Engine::new(CONFIG, Some(&graph), EngineOptions::default()).unwrap();
    let theirs = graph_with(|graph, y| ds::ops::scale(graph, y, 2.0));
    let mut theirs = Engine::new(CONFIG, Some(&theirs), EngineOptions::default()).unwrap();
    let (x, target) = batch();
    for _ in 0..5 {
        let losses = [own.train_batch(&inputs(&x, &target)).unwrap(), theirs.train_batch(&inputs(&x, &target)).unwrap()];
        assert_eq!(losses[0], losses[1]);
    }
    assert_eq!(own.read(0, "master").unwrap(), theirs.read(0, "master").unwrap());
    drop(graph);
    assert_eq!(ended.load(Ordering::Relaxed), 0, "the engine has it");
    drop(own);
    assert_eq!(ended.load(Ordering::Relaxed), 1);
}

#[test]
fn errors_and_panics_of_an_operation_poison_the_engine_that_calls_it() {
    let ended = Arc::new(AtomicUsize::new(0));
    let (x, target) = batch();
    let graph = custom(scale(2.0, true, 2, &ended));
    let make = || Engine::new(CONFIG, Some(&graph), EngineOptions::default()).unwrap();
    let (mut first, mut second, mut third) = (make(), make(), make());
    first.train_batch(&inputs(&x, &target)).unwrap();
    refused(second.train_batch(&inputs(&x, &target)), Status::User, ": out of ideas");
    refused(second.train_batch(&inputs(&x, &target)), Status::Poisoned, "unusable");
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| third.train_batch(&inputs(&x, &target))));
    assert_eq!(*panic.unwrap_err().downcast::<&str>().unwrap(), "of the operation");
    refused(third.eval_batch(&inputs(&x, &target)), Status::Poisoned, "unusable");
    assert_eq!(first.steps(), 1);
    drop((first, second, third, graph));
    assert_eq!(ended.load(Ordering::Relaxed), 1);
}

#[test]
fn what_cannot_be_is_refused_and_ends() {
    let ended = Arc::new(AtomicUsize::new(0));
    let graph = custom(scale(2.0, false, usize::MAX, &ended));
    let failed = Engine::new(CONFIG, Some(&graph), EngineOptions::default());
    refused(failed, Status::InvalidArgument, "my.scale");
    drop(graph);
    assert_eq!(ended.load(Ordering::Relaxed), 1);
    let mut graph = linear_graph();
    let outputs = [CustomOutput::of::<f32>(&[None])];
    refused(graph.custom("s", scale(1.0, true, 9, &ended), &[Value(99)], &outputs), Status::InvalidArgument, "99");
    assert_eq!(ended.load(Ordering::Relaxed), 2);
    refused(graph.custom("s", scale(1.0, true, 9, &ended), &[Value(0)], &[]), Status::InvalidArgument, "outputs");
    assert_eq!(ended.load(Ordering::Relaxed), 3);
    assert!(ds::op_schema().unwrap().contains("rms_norm") && graph.find("w").is_ok());
    refused(graph.find("ww"), Status::NotFound, "ww");
}
