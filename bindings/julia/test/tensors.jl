# Arrays in place; DLPack.

@testset "arrays are lent, not copied" begin
    a = Float32[i + 10j for i in 1:3, j in 1:4]
    t = Tensor(a)
    @test Libds.info(t).data == pointer(a) && size(t) == (3, 4)
    Libds.with_array(v -> v[2, 3] = -1, t)
    @test a[2, 3] == -1
    @test Libds.info(Tensor(view(a, :, 2:3))).data == pointer(a, 4)
    # Views may have gaps.
    v = Tensor(view(a, 2:-1:1, 1:2:3))
    @test Libds.info(v).data == pointer(a, 2) && size(v) == (2, 2) && strides(v) == (-1, 6) && Libds.device(v) == "cpu"
    @test Array(copyto!(Tensor(Float32, 2, 2), v)) == a[2:-1:1, 1:2:3]
    refused(() -> Array(v), Libds.DS_ERROR_INVALID_ARGUMENT, "must be compact for an array, got strides (-1, 6)")
    @test status(() -> Tensor(a')) == Libds.DS_ERROR_INVALID_ARGUMENT
    @test status(() -> Tensor(["no"])) == Libds.DS_ERROR_INVALID_ARGUMENT
    close(t)
    @test !isopen(t) && status(() -> size(t)) == Libds.DS_ERROR_STATE
    close(t)
end

@testset "numbers of 16 bits" begin
    for bits in 0x0000:0xffff
        b = reinterpret(Libds.BFloat16Bits, bits)
        x = Float32(b)
        @assert isnan(x) ? isnan(Float32(Libds.BFloat16Bits(x))) : Libds.BFloat16Bits(x) === b
    end
    @test Float32(Libds.BFloat16Bits(1 + 1 / 256)) == 1 && Float32(Libds.BFloat16Bits(1 + 3 / 256)) == 1 + 4 / 256
end

@testset "copies" begin
    t = Tensor(Float32, 2, 3)
    @test Array(copyto!(t, Float32[1 3 5; 2 4 6])) == [1 3 5; 2 4 6]
    @test Array(copyto!(Tensor(Float32, 2, 3), t)) == [1 3 5; 2 4 6]
    refused(() -> copyto!(t, zeros(Float32, 3, 2)), Libds.DS_ERROR_INVALID_ARGUMENT, "to and from must have one type and shape")
    refused(() -> copyto!(t, zeros(2, 3)), Libds.DS_ERROR_INVALID_ARGUMENT, "to and from must have one type and shape")
    refused(() -> Tensor(Float32, -1), Libds.DS_ERROR_INVALID_ARGUMENT, "must not be negative, got -1")
    refused(() -> Tensor(Float32, ones(Int, 9)...), Libds.DS_ERROR_INVALID_ARGUMENT, "at most 8, got 9")
end

@testset "DLPack tensors share memory" begin
    # An array is exported and imported again, even if nothing else refers to it.
    a = Float32[10j + i for i in 1:3, j in 1:4]
    at = pointer(a)
    capsule = Libds.Capsule(a)
    tensor = unsafe_load(capsule.raw).tensor
    @test tensor.data == at && (tensor.ndim, tensor.code, tensor.bits) == (2, 2, 32)
    @test [unsafe_load(tensor.shape, i) for i in 1:2] == [4, 3]
    a = nothing
    foreach(_ -> GC.gc(), 1:3)
    t = Tensor(Libds.Capsule(Libds.release(capsule)))  # the import takes a pointer, as from another library
    @test !isopen(capsule) && Libds.info(t).data == at && size(t) == (3, 4) && Array(t)[3, 4] == 43
    close(t)
    # Memory of libds outlives its tensor.
    t = Tensor(Int64, 2, 3)
    copyto!(t, Int64[1 2 3; 4 5 6])
    at = Libds.info(t).data
    capsule = Libds.Capsule(t)
    close(t)
    back = Tensor(capsule)
    @test Libds.info(back).data == at && Array(back) == [1 2 3; 4 5 6]
    # DLPack 1.x marks read-only memory.
    capsule = Libds.VersionedCapsule(back)
    v = unsafe_load(capsule.raw)
    @test v.major == 1 && v.flags == 0 && v.tensor.data == at
    unsafe_store!(Ptr{UInt64}(capsule.raw + fieldoffset(Libds.DLVersioned, 5)), 1)
    lent = Tensor(capsule)
    @test Array(lent) == [1 2 3; 4 5 6]
    refused(() -> copyto!(lent, zeros(Int64, 2, 3)), Libds.DS_ERROR_INVALID_ARGUMENT, "marks as read-only")
    @test unsafe_load(Libds.VersionedCapsule(Tensor(ones(3))).raw).tensor.bits == 64
    # A lent array gets a new export.
    b = ones(Float64, 5)
    @test unsafe_load(Libds.Capsule(Tensor(b)).raw).tensor.data == pointer(b)
    @test_throws Libds.Error Libds.Capsule(Ptr{Libds.DLManaged}(C_NULL))
    refused(() -> Libds.Capsule(view(ones(6), 1:2:5)), Libds.DS_ERROR_INVALID_ARGUMENT, "stride 2")
end

const given_back = Ref(0)
function give_back(at::Ptr{Libds.DLManaged})::Cvoid
    given_back[] += 1
    nothing
end

@testset "tensors of others are given back once" begin
    shape, strides, data = Int64[2, 3], Int64[3, 1], Float64[1, 2, 3, 4, 5, 6]
    GC.@preserve shape strides data begin
        given_back[] = 0
        foreign(; kind = 1, bits = 64, offset = 0) = [Libds.DLManaged(
            Libds.DLTensor(pointer(data), kind, 0, 2, 2, bits, 1, pointer(shape), pointer(strides), offset), C_NULL,
            @cfunction(give_back, Cvoid, (Ptr{Libds.DLManaged},)))]
        m = foreign()
        t = Tensor(Libds.Capsule(pointer(m)))
        @test Array(t) == [1 4; 2 5; 3 6]
        export_of_it = Libds.Capsule(t)
        close(t)
        @test given_back[] == 0
        close(export_of_it)
        @test given_back[] == 1
        for (wrong, message) in ((foreign(kind = 2), "device 2"), (foreign(bits = 8), "8 bits"))
            capsule = Libds.Capsule(pointer(wrong))
            refused(() -> Tensor(capsule), Libds.DS_ERROR_UNSUPPORTED, message)
            @test isopen(capsule)
            close(capsule)
        end
        @test given_back[] == 3
        strides .= [1, 2]
        t = Tensor(Libds.Capsule(pointer(m)))
        @test strides == [1, 2] && Array(copyto!(Tensor(Float64, 3, 2), t)) == [1 2; 3 4; 5 6]
        close(t)
        strides .= [3, 1]
        shape[1] = 1
        m = foreign(offset = 24)
        t = Tensor(Libds.Capsule(pointer(m)))
        @test Array(t) == reshape([4, 5, 6], 3, 1)
        close(t)
        @test given_back[] == 5
    end
end

@testset "tensors are inputs" begin
    e = Engine(CONFIG, linear_graph())
    x, target = batch()
    @test Libds.train_batch!(e, Tensor(x), Tensor(target)) > 0
    y = Libds.Capsule(Libds.infer(e, x, nothing))
    close(e)
    @test size(Tensor(y)) == (2, 4)
end
