# Collectives as values, on one rank; ranks.jl tests them on three.

@testset "lists, blocks and started collectives of one rank" begin
    c = Comm("self")
    a, b = Float32[1 2; 3 4], Float32[5]
    outs = Libds.collective(c, :all_reduce, [a, b])
    @test outs[1] === a && outs[2] === b
    w = Libds.start(c, :all_gather, [Int64[1, 2], Int64[3]])
    @test fetch(w) == [[1, 2], [3]] && Libds.isdone(w)
    @test fetch(w) == [[1, 2], [3]]
    @test fetch(Libds.start(c, :all_reduce, [Float16[1.5]])) == [[1.5f0]]
    @test isempty(fetch(Libds.start(c, :barrier)))
    @test Libds.collective(c, :all_gather, [UInt8[1, 2]]; blocks = [2]) == [[1, 2]]
    bad = Libds.DS_ERROR_INVALID_ARGUMENT
    refused(() -> Libds.collective(c, :all_sum, [a]), bad, "no collective is named :all_sum")
    refused(() -> Libds.collective(c, :all_reduce, Any[a, Int32[1]]), bad, "one type")
    refused(() -> Libds.collective(c, :all_reduce, [a]; op = :middle), bad, "got :middle")
    refused(() -> Libds.start(c, :broadcast, [a]; root = 7), bad, "root must be 0 to 0, got 7")
    refused(() -> Libds.collective(c, :scatter, [a]), bad, "needs counts")
    refused(() -> Libds.collective(c, :scatter, [a]; counts = [3]), bad, "must have 3 elements, got 4")
    refused(() -> Libds.collective(c, :all_gather, [UInt8[1]]; blocks = [1, 1]), bad, "one for each of 1 ranks, got 2")
    refused(() -> Libds.collective(c, :all_gather, [UInt8[1]]; blocks = [2]), bad, "must have 2 elements, got 1")
    refused(() -> Libds.collective(c, :all_to_all, [UInt8[1]]; blocks = [1]), bad, "needs out_blocks")
    refused(() -> Libds.collective(c, :broadcast, [UInt8[1]]; blocks = [1]), bad, "blocks are of")
    refused(() -> Libds.collective(c, :all_reduce, [view(ones(6), 1:2:5)]), bad, "dense")
    refused(() -> Libds.collective(c, :all_reduce, [Int32[1]]; op = :mean), bad, "mean")
    refused(() -> Comm("threads://rank4"; rank = 4, size = 2), bad, "rank must be 0 to 1, got 4")
    Libds.barrier(c)
    close(w)
    refused(() -> fetch(w), Libds.DS_ERROR_STATE, "closed")
end

@testset "arrays of started collectives are kept until they have ended" begin
    c = Comm("self")
    for _ in 1:50
        Libds.start(c, :all_reduce, [ones(Float32, 20_000)])  # nothing else refers to the array
        GC.gc(false)
        fresh = fill(-1.0f0, 20_000)
        @test all(fresh .== -1)
    end
    Libds.barrier(c)
    Libds.start(c, :barrier)
    @test length(Libds.started) <= 2
end
