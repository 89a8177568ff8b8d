//! Fine-tunes a model folder or a GGUF file by a low-rank adapter, on a text in memory. Usage: finetune MODEL RUN
use ds::{generate, Run};
use std::path::Path;

const TEXT: &str = "The tide comes in, the tide goes out. The boats rise with the water and wait. The tide comes \
    in, the tide goes out. The bell on the pier counts the waves, and nobody else does.";

fn say(when: &str, model: &str) -> ds::Result<()> {
    let options = Some(r#"{"tokens": 12, "temperature": 0}"#);
    println!("{when}: {}", generate(None, Path::new(model), Some("The tide"), options, None)?);
    Ok(())
}

fn main() -> ds::Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let (model, run) = match &words[..] {
        [_, model, run] => (model, run),
        _ => panic!("usage: finetune MODEL RUN"),
    };
    let config = format!(
        r#"{{"model": {{"folder": "{model}"}}, "run": {{"dir": "{run}", "sequence": 16, "steps": 40}},
            "adapter": {{"r": 8, "lora_alpha": 16, "target_modules": "all-linear"}},
            "data": {{"text": "{TEXT}", "heldout": 0}}, "train_micro_batch_size_per_gpu": 2,
            "optimizer": {{"type": "AdamW", "params": {{"lr": 0.01}}}}}}"#
    );
    let mut losses = Vec::new();
    say("before", model)?;
    let show = |now: &mut ds::Progress| {
        losses.push(now.loss);
        if now.step % 10 == 0 {
            println!("step {} loss {:.2}", now.step, now.loss);
        }
        true
    };
    Run::new(&config).progress(show).train()?;
    say("after", run)?;
    assert!(losses[losses.len() - 1] < losses[0]);
    Ok(())
}
