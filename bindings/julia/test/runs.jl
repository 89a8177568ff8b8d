# Whole runs: data, progress and texts by callbacks, verify, profile, audit.

@testset "a callback's exception is thrown again after the run" begin
    folder = mktempdir()
    write(joinpath(folder, "text.txt"), "to train or not to train "^400)
    config(name) = """{"train_micro_batch_size_per_gpu": 2, "model": {"family": "gpt", "layers": 1, "hidden": 32, "heads": 2},
        "data": {"paths": ["$folder/text.txt"]},
        "run": {"dir": "$folder/$name", "eval_samples": 2, "steps": 5, "sequence": 16, "threads": 1}}"""
    seen = []
    Libds.train(p -> push!(seen, p.loss), config("one"); quiet = 2)
    @test length(seen) == 5 && all(isfinite, seen)
    @test status(() -> Libds.train(p -> p.step < 2, config("two"); quiet = 2)) == Libds.DS_ERROR_USER
    @test failure(() -> Libds.train(p -> error("of the callback"), config("three"); quiet = 2)).msg == "of the callback"
    @test length(Libds.generate(joinpath(folder, "one"), "to "; options = "{\"tokens\": 5}")) > 0
end

# Returns examples/train.json, made small: one layer, six steps.
function main_job(folder)
    write(joinpath(folder, "text.txt"), join("def f$i(x):\n    return x * $(i % 7) + f$(i ÷ 2)(x)\n" for i in 0:399))
    patch = """{"model": {"layers": 1, "hidden": 32, "vocab": 300, "positions": 32}, "data": {"paths": ["$folder/text.txt"]},
        "zero_optimization": {"offload_optimizer": {"nvme_path": "$folder/nvme"}},
        "scheduler": {"params": {"total_num_steps": 6, "warmup_num_steps": 2}},
        "run": {"dir": "$folder/run", "sequence": 32, "steps": 6, "eval_every": 3, "eval_samples": 8, "save_every": 3,
                "sample_tokens": 0, "threads": 1, "bars": null}}"""
    Libds.merge_config(read(joinpath(HERE, "..", "..", "..", "examples", "train.json"), String), patch)
end

@testset "the main job trains, stops, goes on and writes text" begin
    folder = mktempdir()
    config, run, seen = main_job(folder), joinpath(folder, "run"), []
    @test Libds.communicator(config) == "env"
    rate(p) = p.step == 2 && Libds.next_lr!(p, 2 * Libds.next_lr(p))
    refused(() -> Libds.train(p -> (push!(seen, p); rate(p); p.step < 4), config; quiet = 2), Libds.DS_ERROR_USER, "after step 4")
    Libds.train(p -> push!(seen, p), nothing; resume = run, quiet = 2)
    @test [p.step for p in seen] == 1:6 && seen[6].loss < seen[1].loss
    @test seen[3].lr != seen[2].lr && seen[4].lr == seen[3].lr == seen[6].lr
    @test isnan(seen[1].heldout_loss) && !isnan(seen[6].heldout_loss)
    @test occursin("\"step\": 6", Libds.checkpoint_info(run))
    @test occursin("\"step\": 6", Libds.convert_checkpoint(run, run * "_universal", """{"to": "universal"}"""))
    @test isfile(joinpath(run * "_universal", "latest_universal"))
    parts, options = String[], """{"tokens": 12, "seed": 3}"""
    text = Libds.generate(p -> push!(parts, p), run, "def "; options = options)
    @test !isempty(text) && join(parts) == text == Libds.generate(run, "def "; options = options)
    @test failure(() -> Libds.generate(p -> error("of the text"), run, "def "; options = options)).msg == "of the text"
    empty!(parts)
    refused(() -> Libds.generate(p -> (push!(parts, p); length(parts) < 3), run, "def "; options = options),
            Libds.DS_ERROR_USER, "a callback asked to stop")
    @test length(parts) == 3
    refused(() -> Libds.generate(run, "a"; options = "{\"token\": 3}"), Libds.DS_ERROR_CONFIG, "tokens")
    refused(() -> Libds.generate(joinpath(folder, "nowhere"), "a"), Libds.DS_ERROR_NOT_FOUND, "nowhere")
end

@testset "data come from a function, a flag stops the run, and exceptions go on" begin
    folder = mktempdir()
    run = joinpath(folder, "run")
    config = """{"train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
        "model": {"family": "gpt", "layers": 1, "hidden": 32, "heads": 2, "vocab": 256, "positions": 16},
        "run": {"dir": "$run", "steps": 40, "sequence": 16, "sample_tokens": 0, "threads": 1}}"""
    function fill_batch(step, micro_step, tokens, targets)
        tokens .= 97 .+ (0:length(tokens)-1) .% 4
        targets .= 97 .+ (1:length(tokens)) .% 4
    end
    stop, last = Ref{Int32}(0), Ref(NaN)
    refused(() -> Libds.train(p -> (stop[] = p.step == 20; true), config; quiet = 2, batch = fill_batch, stop = stop),
            Libds.DS_ERROR_USER, "the stop flag asked to stop after step 20")
    failing(step, rest...) = step < 25 ? fill_batch(step, rest...) : error("of the data")
    @test failure(() -> Libds.train(nothing; resume = run, quiet = 2, batch = failing)).msg == "of the data"
    Libds.train(p -> (last[] = p.loss; true), nothing; resume = run, quiet = 2, batch = fill_batch)
    @test last[] < 0.5
    @test startswith(Libds.generate(run, "abcdab"; options = "{\"tokens\": 10, \"temperature\": 0}"), "cdabcdabcd")
end

@testset "verify, profile, audit" begin
    gpt2 = joinpath(MODELS, "gpt2")
    outcome = Libds.verify(gpt2; options = "{\"kinds\": [\"loss\"]}", format = :json)
    @test outcome.failed == 0 && occursin("\"failed\": 0", outcome.report)
    refused(() -> Libds.verify(gpt2; options = "{\"kind\": []}"), Libds.DS_ERROR_CONFIG, "did you mean kinds?")
    refused(() -> Libds.verify("nowhere"), Libds.DS_ERROR_NOT_FOUND, "nowhere/golden.json")
    config = """{"train_micro_batch_size_per_gpu": 2, "model": {"family": "gpt", "layers": 1, "hidden": 32, "heads": 2,
        "vocab": 64, "positions": 16}, "run": {"sequence": 16, "threads": 1}}"""
    @test startswith(Libds.profile(config; options = "{\"steps\": 1}", format = :json), "{")
    @test occursin("linear", Libds.profile(model = gpt2, options = "{\"steps\": 1}"))
    audit = Libds.audit(config; options = "{\"steps\": 1, \"top\": 3}")
    @test audit.failed == 0 && count("\n", audit.report) > 3
end
