# finetune.c in Julia: an adapter for a model folder or a GGUF file, on a text in memory. Run: julia finetune.jl MODEL RUN
using Libds, Printf

const TEXT = "The tide comes in, the tide goes out. The boats rise with the water and wait. The tide comes " *
             "in, the tide goes out. The bell on the pier counts the waves, and nobody else does."
const MODEL, RUN = ARGS

config = """{"model": {"folder": "$MODEL"}, "run": {"dir": "$RUN", "sequence": 16, "steps": 40},
             "adapter": {"r": 8, "lora_alpha": 16, "target_modules": "all-linear"},
             "data": {"text": "$TEXT", "heldout": 0}, "train_micro_batch_size_per_gpu": 2,
             "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}}"""
say(when, model) = println(when, ": ", Libds.generate(model, "The tide"; options = """{"tokens": 12, "temperature": 0}"""))

losses = Float64[]
say("before", MODEL)
Libds.train(config; quiet = 2) do now
    push!(losses, now.loss)
    if now.step % 10 == 0
        @printf("step %d loss %.2f\n", now.step, now.loss)
    end
end
say("after", RUN)
@assert losses[end] < losses[1]
