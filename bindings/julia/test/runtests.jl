# The scenarios of every wrapper. Run: julia --project=bindings/julia bindings/julia/test/runtests.jl
include("common.jl")
include("train.jl")
include("ops.jl")
include("custom.jl")
include("errors.jl")
include("delegate.jl")
include("tensors.jl")
include("collectives.jl")
include("runs.jl")
include("handles.jl")
include("sequence.jl")
include("streams.jl")

# Each program runs in a module of its own.
@testset "the programs of the guide" begin
    text = read(joinpath(HERE, "..", "..", "..", "docs", "start", "julia.md"), String)
    blocks = [m.captures[1] for m in eachmatch(r"```julia\n(.*?)```"s, text)]
    @test length(blocks) == 8
    for block in blocks
        Base.include_string(Module(), block)
    end
end

# Ranks are processes: a thread that waits in libds would stop Julia's collector in the others.
@testset "ranks" begin
    launch = get(ENV, "DS_COMMAND", "libds")
    julia = `$(Base.julia_cmd()) --project=$(dirname(HERE)) $(joinpath(HERE, "ranks.jl"))`
    @test success(pipeline(`$launch launch -n 3 $julia`; stdout = stdout, stderr = stderr))
end
