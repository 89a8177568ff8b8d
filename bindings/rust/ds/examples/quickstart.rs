//! Twenty lines that train: a linear model learns to copy its input.
use ds::{Engine, EngineOptions, Graph, View};

fn main() -> ds::Result<()> {
    let mut graph = Graph::new("copy", 8)?;
    let x = graph.input::<f32>("x", &[None, Some(4)])?;
    let weight = graph.param("weight", &[4, 4], "normal", 0.1)?;
    let bias = graph.param("bias", &[4], "zeros", 0.0)?;
    let y = graph.op("linear", &[x, weight, bias], None)?;
    let loss = graph.op("mse", &[y, x], None)?;
    graph.output("loss", loss)?;
    let config = r#"{"train_micro_batch_size_per_gpu": 8, "optimizer": {"type": "AdamW", "params": {"lr": 0.05}}}"#;
    let mut engine = Engine::new(config, Some(&graph), EngineOptions::default())?;
    let data: Vec<f32> = (0..32).map(|i| ((i * 7) % 11) as f32 / 11.0).collect();
    for step in 1..=100 {
        let loss = engine.train_batch(&[View::of(&data, &[8, 4])?])?;
        if step % 20 == 0 {
            println!("step {step}: loss {loss:.6}");
        }
    }
    Ok(())
}
