//! What a call of the crate costs: microseconds for each step of a linear model, the best of seven repetitions.
//! `bench/wrappers.py` runs this program beside the same one in the other languages.
//!   step STEPS
use ds::{Engine, EngineOptions, Graph, View};
use std::time::Instant;

const ROWS: usize = 160;
const WIDTH: usize = 256;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let steps: u32 = std::env::args().nth(1).ok_or("step takes the number of steps")?.parse()?;
    let mut graph = Graph::new("copy", ROWS)?;
    let x = graph.input::<f32>("x", &[None, Some(WIDTH)])?;
    let weight = graph.param("weight", &[WIDTH, WIDTH], "normal", 0.05)?;
    let bias = graph.param("bias", &[WIDTH], "zeros", 0.0)?;
    let y = graph.op("linear", &[x, weight, bias], None)?;
    let loss = graph.op("mse", &[y, x], None)?;
    graph.output("loss", loss)?;
    let config = r#"{"train_micro_batch_size_per_gpu": 160, "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}}"#;
    let mut engine = Engine::new(config, Some(&graph), EngineOptions { threads: 1, ..Default::default() })?;
    let data: Vec<f32> = (0..ROWS * WIDTH).map(|i| (i * 37 % 101) as f32 / 101.0 - 0.5).collect();
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let begin = Instant::now();
        for _ in 0..steps {
            engine.train_batch(&[View::of(&data, &[ROWS, WIDTH])?])?;
        }
        best = best.min(begin.elapsed().as_secs_f64() / f64::from(steps));
    }
    println!("{:.2}", best * 1e6);
    Ok(())
}
