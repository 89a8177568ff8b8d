// bench/wrappers/step.c in Rust.
use ds::{Engine, EngineOptions, Graph, View};
use std::{io::BufRead, time::Instant};

fn main() -> ds::Result<()> {
    let mut graph = Graph::new("linear", 4)?;
    let x = graph.input::<f32>("x", &[None, Some(3)])?;
    let target = graph.input::<f32>("target", &[None, Some(2)])?;
    let w = graph.param("w", &[2, 3], "normal", 0.1)?;
    let b = graph.param("b", &[2], "zeros", 0.0)?;
    let y = graph.op("linear", &[x, w, b], None)?;
    let loss = graph.op("mse", &[y, target], None)?;
    graph.output("loss", loss)?;
    let config = r#"{"train_micro_batch_size_per_gpu": 4, "optimizer": {"type": "SGD", "params": {"lr": 0.01}}}"#;
    let mut engine = Engine::new(config, Some(&graph), EngineOptions { threads: 1, ..EngineOptions::default() })?;
    let (xs, targets) = ([0.5f32; 12], [0.25f32; 8]);
    for line in std::io::stdin().lock().lines() {
        let steps: u32 = line.unwrap().trim().parse().unwrap();
        let begin = Instant::now();
        for _ in 0..steps {
            engine.train_batch(&[View::of(&xs, &[4, 3])?, View::of(&targets, &[4, 2])?])?;
        }
        println!("{:.4}", begin.elapsed().as_secs_f64() * 1e6 / f64::from(steps));
    }
    Ok(())
}
