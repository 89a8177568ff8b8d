# Random sequences of calls of one rank; ranks.jl has the sequences of three ranks. DS_LONG makes
# more sequences.
include("dice.jl")

@testset "random sequences of calls" begin
    Libds.set_log((level, line) -> nothing)
    folder = mktempdir()
    answers = Any[]
    for seed in 1:(haskey(ENV, "DS_LONG") ? 5000 : 100)
        append!(answers, sequence(Comm("self"), isodd(seed) ? nothing : Comm("self"), seed, folder))
        seed % 10 == 0 && GC.gc()
    end
    good = count(a -> a[2] == 0, answers)
    @test length(answers) / 4 < good < length(answers)  # the sequence has right and wrong calls
    Libds.set_log(nothing)
end
