// Tensors: memory in place, element types, DLPack both ways.
mod common;
use common::*;
use ds::dlpack::{Managed, Raw};
use ds::{Bf16, Engine, EngineOptions, Status, Tensor, View, F16};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

#[test]
fn slices_are_lent_where_they_lie() {
    let data = [1.0f32; 12];
    assert_eq!(View::of(&data, &[4, 3]).unwrap().address().unwrap(), data.as_ptr().cast());
    assert_eq!(View::of(&data[3..9], &[2, 3]).unwrap().address().unwrap(), data[3..].as_ptr().cast());
    let tensor = Tensor::copy_of(&data, &[12]).unwrap();
    assert_eq!(tensor.view().address().unwrap(), tensor.data::<f32>().unwrap().as_ptr().cast());
    refused(View::of(&data, &[5, 3]), Status::InvalidArgument, "[5, 3] must have 15 elements, got 12");
    refused(View::of(&data, &[usize::MAX, 3]), Status::InvalidArgument, "got 12");
    refused(Tensor::copy_of(&data, &[5]), Status::InvalidArgument, "must have 5 elements, got 12");
    refused(Tensor::zeros::<f32>(&[usize::MAX]), Status::InvalidArgument, "too large");
    refused(Tensor::zeros::<f32>(&[1; 9]), Status::InvalidArgument, "dims_count must be at most 8, got 9");
    assert!(View::of::<f32>(&[], &[0, 3]).unwrap().address().is_ok());
    assert!(Tensor::zeros::<i64>(&[0]).unwrap().data::<i64>().unwrap().is_empty());
}

#[test]
fn elements_that_lie_apart_are_lent_too() {
    let data: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let mut to = Tensor::zeros::<f32>(&[3, 2]).unwrap();
    // The transpose of two columns of four.
    to.copy_from(&View::strided(&data, 1, &[3, 2], &[4, 1]).unwrap()).unwrap();
    assert_eq!(to.data::<f32>().unwrap(), [1.0, 2.0, 5.0, 6.0, 9.0, 10.0]);
    to.copy_from(&View::strided(&data, 11, &[3, 2], &[-1, -4]).unwrap()).unwrap();
    assert_eq!(to.data::<f32>().unwrap(), [11.0, 7.0, 10.0, 6.0, 9.0, 5.0]);
    to.copy_from(&View::strided(&data, 5, &[3, 2], &[0, 0]).unwrap()).unwrap();
    assert_eq!(to.data::<f32>().unwrap(), [5.0; 6]);
    refused(View::strided(&data, 2, &[3, 2], &[4, 2]), Status::InvalidArgument, "reaches elements 2 to 12, got a slice of 12");
    refused(View::strided(&data, 3, &[3, 2], &[-2, 1]), Status::InvalidArgument, "reaches elements -1 to 4");
    refused(View::strided(&data, 0, &[2, 2], &[i64::MAX, 1]), Status::InvalidArgument, "reaches elements 0 to");
    refused(View::strided(&data, 0, &[2], &[1, 1]), Status::InvalidArgument, "one for each dimension, got 2");
    assert!(View::strided(&data, 99, &[0, 3], &[1, 1]).is_ok());
    // Inputs of a step may have gaps: the bits are those of a contiguous copy.
    let (x, target) = batch();
    let wide: Vec<f32> = x.chunks(3).flat_map(|row| row.iter().copied().chain([f32::NAN; 2])).collect();
    let mut engines = [0, 1].map(|_| Engine::new(CONFIG, Some(&linear_graph()), EngineOptions::default()).unwrap());
    let [_, plain] = inputs(&x, &target);
    let apart = engines[0].train_batch(&[View::strided(&wide, 0, &[4, 3], &[5, 1]).unwrap(), plain]).unwrap();
    assert_eq!(apart, engines[1].train_batch(&inputs(&x, &target)).unwrap());
    assert_eq!(engines[0].read(0, "master").unwrap(), engines[1].read(0, "master").unwrap());
}

#[test]
fn dlpack_has_two_forms_and_one_says_what_is_lent_for_reading() {
    let tensor = Tensor::from_vec(vec![1i64, 2, 3], &[3]).unwrap();
    let at = tensor.data::<i64>().unwrap().as_ptr();
    let managed = tensor.into_dlpack_versioned().unwrap();
    assert!(!managed.is_readonly() && managed.tensor().data as *const i64 == at);
    let raw = managed.into_raw();
    match raw {
        // SAFETY: the tensor is alive.
        Raw::Versioned(v) => unsafe {
            assert_eq!((*v).major, 1);
            (*v).flags |= 1;
        },
        Raw::Unversioned(_) => panic!("the older form"),
    }
    // SAFETY: nobody else has it.
    let managed = unsafe { Managed::from_raw(raw) }.unwrap();
    assert!(managed.is_readonly());
    let mut lent = Tensor::from_dlpack(managed).unwrap();
    assert_eq!(lent.data::<i64>().unwrap(), [1, 2, 3]);
    refused(lent.data_mut::<i64>(), Status::InvalidArgument, "for reading");
    refused(lent.copy_from(&View::of(&[0i64; 3], &[3]).unwrap()), Status::InvalidArgument, "marks as read-only");
    assert!(lent.into_dlpack_versioned().unwrap().is_readonly());
}

#[test]
fn tensors_are_read_and_copied_as_their_type() {
    let mut to = Tensor::zeros::<f32>(&[2, 2]).unwrap();
    refused(to.data::<i32>(), Status::InvalidArgument, "are f32, got a slice of i32");
    refused(to.data_mut::<u8>(), Status::InvalidArgument, "are f32, got a slice of u8");
    to.data_mut::<f32>().unwrap()[3] = 5.0;
    to.copy_from(&View::of(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]).unwrap()).unwrap();
    assert_eq!(to.data::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    refused(to.copy_from(&View::of(&[1.0f32; 4], &[4]).unwrap()), Status::InvalidArgument, "to and from must have one type and shape");
    refused(to.copy_from(&View::of(&[1i32; 4], &[2, 2]).unwrap()), Status::InvalidArgument, "to and from must have one type and shape");
}

#[test]
fn numbers_of_16_bits() {
    for bits in 0..=u16::MAX {
        let (b, x) = (Bf16(bits), Bf16(bits).to_f32());
        assert!(x.is_nan() || Bf16::from_f32(x) == b, "{bits:x}");
        assert_eq!(x.is_nan(), Bf16::from_f32(x).to_f32().is_nan());
    }
    assert_eq!(Bf16::from_f32(1.0 + 1.0 / 256.0), Bf16::from_f32(1.0), "a tie goes to even");
    assert_eq!(Bf16::from_f32(1.0 + 3.0 / 256.0).to_f32(), 1.0 + 4.0 / 256.0);
    assert_eq!(Bf16::from_f32(f32::MAX).to_f32(), f32::INFINITY);
    let f16: Vec<f32> = [0x0001, 0x03FF, 0x0400, 0x3C00, 0xC000, 0x7BFF, 0x7C00].iter().map(|&b| F16(b).to_f32()).collect();
    let expected = [2f32.powi(-24), 1023.0 * 2f32.powi(-24), 2f32.powi(-14), 1.0, -2.0, 65504.0, f32::INFINITY];
    assert_eq!(f16, expected);
    assert!(F16(0x7C01).to_f32().is_nan());
}

#[test]
fn a_vector_becomes_a_tensor_and_a_dlpack_tensor_without_a_copy() {
    let data: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let at = data.as_ptr();
    let tensor = Tensor::from_vec(data, &[4, 3]).unwrap();
    assert_eq!((tensor.data::<f32>().unwrap().as_ptr(), tensor.dims().unwrap()), (at, vec![4, 3]));
    let managed = tensor.into_dlpack().unwrap();
    let shape = managed.tensor();
    assert_eq!((shape.data as *const f32, shape.dims_count, shape.dtype.bits), (at, 2, 32));
    // The same happens when a capsule goes to another library and comes back.
    let raw = managed.into_raw();
    // SAFETY: nobody else has it.
    let managed = unsafe { Managed::from_raw(raw) }.unwrap();
    let mut again = Tensor::from_dlpack(managed).unwrap();
    again.data_mut::<f32>().unwrap()[11] = -1.0;
    assert_eq!((again.data::<f32>().unwrap().as_ptr(), again.data::<f32>().unwrap()[11]), (at, -1.0));
    // An engine uses a tensor of libds in the same way.
    let target = Tensor::from_vec(vec![1.0f32; 8], &[4, 2]).unwrap();
    let mut engine = Engine::new(CONFIG, Some(&linear_graph()), EngineOptions::default()).unwrap();
    engine.train_batch(&[again.view(), target.view()]).unwrap();
    let y = engine.infer(&[Some(again.view()), None]).unwrap().into_dlpack().unwrap();
    drop(engine);
    assert_eq!(Tensor::from_dlpack(y).unwrap().dims().unwrap(), [4, 2]);
    // SAFETY: NULL is no tensor.
    assert!(unsafe { Managed::from_raw(Raw::Unversioned(std::ptr::null_mut())) }.is_none());
    refused(Managed::from_vec(vec![1u8; 3], &[2]), Status::InvalidArgument, "must have 2 elements, got 3");
}

// A DLPack tensor as another library might give it, with a counter of calls of its deleter.
struct Foreign {
    managed: ds::dlpack::ManagedTensor,
    dims: [i64; 2],
    strides: [i64; 2],
    data: [f64; 6],
    ended: Arc<AtomicUsize>,
}

unsafe extern "C" fn end_foreign(managed: *mut ds::dlpack::ManagedTensor) {
    let foreign = Box::from_raw((*managed).context.cast::<Foreign>());
    foreign.ended.fetch_add(1, Ordering::Relaxed);
}

fn foreign(ended: &Arc<AtomicUsize>, change: impl FnOnce(&mut ds::dlpack::Shape, &mut [i64; 2])) -> Managed {
    use ds::dlpack::{Device, ManagedTensor, Shape, Type};
    let tensor = Shape {
        data: std::ptr::null_mut(),
        device: Device { kind: 1, index: 0 },
        dims_count: 2,
        dtype: Type { code: 2, bits: 64, lanes: 1 },
        dims: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let managed = ManagedTensor { tensor, context: std::ptr::null_mut(), deleter: Some(end_foreign) };
    let (dims, strides, data, ended) = ([2, 3], [3, 1], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], ended.clone());
    let foreign = Box::leak(Box::new(Foreign { managed, dims, strides, data, ended }));
    foreign.managed.context = (foreign as *mut Foreign).cast();
    foreign.managed.tensor.data = foreign.data.as_mut_ptr().cast();
    foreign.managed.tensor.dims = foreign.dims.as_mut_ptr();
    foreign.managed.tensor.strides = foreign.strides.as_mut_ptr();
    change(&mut foreign.managed.tensor, &mut foreign.strides);
    // SAFETY: the tensor is complete and has no other owner.
    unsafe { Managed::from_raw(Raw::Unversioned(&mut foreign.managed)) }.unwrap()
}

#[test]
fn tensors_of_others_are_given_back_once() {
    let ended = Arc::new(AtomicUsize::new(0));
    let tensor = Tensor::from_dlpack(foreign(&ended, |_, _| ())).unwrap();
    assert_eq!(tensor.data::<f64>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let exported = tensor.into_dlpack().unwrap();
    assert_eq!(ended.load(Ordering::Relaxed), 0, "the export keeps the memory");
    drop(exported);
    assert_eq!(ended.load(Ordering::Relaxed), 1);
    let strided = Tensor::from_dlpack(foreign(&ended, |_, strides| *strides = [1, 2])).unwrap();
    refused(strided.data::<f64>(), Status::InvalidArgument, "compact for a slice, got strides [1, 2]");
    let mut copy = Tensor::zeros::<f64>(&[2, 3]).unwrap();
    copy.copy_from(&strided.view()).unwrap();
    assert_eq!(copy.data::<f64>().unwrap(), [1.0, 3.0, 5.0, 2.0, 4.0, 6.0]);
    drop(strided);
    refused(Tensor::from_dlpack(foreign(&ended, |t, _| t.device.kind = 2)), Status::Unsupported, "device 2");
    refused(Tensor::from_dlpack(foreign(&ended, |t, _| t.dtype.bits = 8)), Status::Unsupported, "8 bits");
    assert_eq!(ended.load(Ordering::Relaxed), 4, "what is refused is given back");
    let at_offset = foreign(&ended, |t, _| {
        // SAFETY: the dimensions exist.
        unsafe { *t.dims = 1 };
        t.byte_offset = 24;
    });
    assert_eq!(Tensor::from_dlpack(at_offset).unwrap().data::<f64>().unwrap(), [4.0, 5.0, 6.0]);
    assert_eq!(ended.load(Ordering::Relaxed), 5);
}
