use crate::{check, Error, Result};
use std::marker::PhantomData;

mod sealed {
    pub trait Sealed {}
}

/// An element type of tensors and collectives.
pub trait Element: Copy + Default + PartialEq + std::fmt::Debug + Send + Sync + sealed::Sealed + 'static {
    const DTYPE: ds_sys::ds_dtype;
    /// The type of a sum: f32 for 16-bit floats, which are summed in f32, else the type itself.
    type Sum: Element;
}

/// A bfloat16 number as its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// An IEEE half-precision number as its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct F16(pub u16);

impl Bf16 {
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// Rounds to the nearest number, ties to even.
    pub fn from_f32(x: f32) -> Bf16 {
        let bits = x.to_bits();
        if x.is_nan() {
            return Bf16((bits >> 16) as u16 | 0x40);
        }
        Bf16(((u64::from(bits) + 0x7FFF + u64::from(bits >> 16 & 1)) >> 16) as u16)
    }
}

impl F16 {
    pub fn to_f32(self) -> f32 {
        let (sign, exponent, fraction) = (u32::from(self.0 >> 15) << 31, self.0 >> 10 & 31, u32::from(self.0 & 0x3FF));
        match exponent {
            0 => f32::from_bits(sign | (fraction as f32 * 2f32.powi(-24)).to_bits()),
            31 => f32::from_bits(sign | 0x7F80_0000 | fraction << 13),
            _ => f32::from_bits(sign | (u32::from(exponent) + 112) << 23 | fraction << 13),
        }
    }
}

macro_rules! element {
    ($type:ty, $dtype:ident, $sum:ty) => {
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: ds_sys::ds_dtype = ds_sys::$dtype;
            type Sum = $sum;
        }
    };
}
element!(f32, DS_DTYPE_F32, f32);
element!(f64, DS_DTYPE_F64, f64);
element!(i32, DS_DTYPE_I32, i32);
element!(i64, DS_DTYPE_I64, i64);
element!(u8, DS_DTYPE_U8, u8);
element!(Bf16, DS_DTYPE_BF16, f32);
element!(F16, DS_DTYPE_F16, f32);

/// Name of an element type, as messages of libds have it.
pub(crate) fn dtype_name(dtype: ds_sys::ds_dtype) -> &'static str {
    match dtype {
        ds_sys::DS_DTYPE_F32 => "f32",
        ds_sys::DS_DTYPE_F64 => "f64",
        ds_sys::DS_DTYPE_I32 => "i32",
        ds_sys::DS_DTYPE_I64 => "i64",
        ds_sys::DS_DTYPE_U8 => "u8",
        ds_sys::DS_DTYPE_BF16 => "bf16",
        ds_sys::DS_DTYPE_F16 => "f16",
        _ => "no type",
    }
}

/// Dimensions as libds takes them; one that it cannot count becomes one that it refuses.
pub(crate) fn dims_of(dims: &[usize]) -> Vec<i64> {
    dims.iter().map(|&d| i64::try_from(d).unwrap_or(i64::MAX)).collect()
}

pub(crate) fn refuse_count(dims: &[usize], count: usize) -> Error {
    let needed = dims.iter().fold(1usize, |n, &d| n.saturating_mul(d));
    Error::argument(format!("data of shape {dims:?} must have {needed} elements, got {count}"))
}

/// A dense row-major tensor that has its memory to itself.
///
/// Its memory is gone when it is dropped, so the compiler refuses what would read it later:
///
/// ```compile_fail,E0505
/// let tensor = ds::Tensor::zeros::<f32>(&[2]).unwrap();
/// let data = tensor.data::<f32>().unwrap();
/// drop(tensor);
/// println!("{data:?}");
/// ```
pub struct Tensor {
    pub(crate) raw: *mut ds_sys::ds_tensor,
}

// SAFETY: distinct handles are independent; a tensor is used by one thread at a time, as it is not Sync.
unsafe impl Send for Tensor {}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle; views borrow the tensor.
        unsafe { ds_sys::ds_tensor_destroy(self.raw) }
    }
}

/// The one place that makes tensors. `data` NULL: memory of its own, zeros.
///
/// # Safety
/// `data` is NULL, or has as many elements as `dims` say and outlives the tensor.
unsafe fn create<T: Element>(dims: &[usize], data: *mut std::ffi::c_void) -> Result<*mut ds_sys::ds_tensor> {
    let dims = dims_of(dims);
    let mut raw = std::ptr::null_mut();
    check(ds_sys::ds_tensor_create(T::DTYPE, dims.as_ptr(), dims.len(), data, &mut raw))?;
    Ok(raw)
}

pub(crate) struct Info {
    pub dtype: ds_sys::ds_dtype,
    pub dims: Vec<usize>,
    pub data: *mut std::ffi::c_void,
}

/// The one place that asks what a tensor is.
fn info_of(raw: *const ds_sys::ds_tensor) -> Result<Info> {
    let (mut dtype, mut dims, mut count, mut data) = (0, [0i64; 8], 0, std::ptr::null_mut());
    // SAFETY: every output is valid during the call.
    unsafe { check(ds_sys::ds_tensor_info(raw, &mut dtype, dims.as_mut_ptr(), dims.len(), &mut count, &mut data))? };
    Ok(Info { dtype, dims: dims[..count].iter().map(|&d| d as usize).collect(), data })
}

impl Tensor {
    /// Zeros.
    pub fn zeros<T: Element>(dims: &[usize]) -> Result<Tensor> {
        // SAFETY: without data libds takes memory of its own.
        Ok(Tensor { raw: unsafe { create::<T>(dims, std::ptr::null_mut())? } })
    }

    /// A copy of `data`.
    pub fn copy_of<T: Element>(data: &[T], dims: &[usize]) -> Result<Tensor> {
        let mut out = Tensor::zeros::<T>(dims)?;
        let to = out.data_mut::<T>()?;
        if to.len() != data.len() {
            return Err(refuse_count(dims, data.len()));
        }
        to.copy_from_slice(data);
        Ok(out)
    }

    pub(crate) fn own(raw: *mut ds_sys::ds_tensor) -> Tensor {
        Tensor { raw }
    }

    /// Dimensions.
    pub fn dims(&self) -> Result<Vec<usize>> {
        Ok(info_of(self.raw)?.dims)
    }

    fn place<T: Element>(&self) -> Result<(*mut T, usize)> {
        let info = info_of(self.raw)?;
        if info.dtype != T::DTYPE {
            let (is, got) = (dtype_name(info.dtype), dtype_name(T::DTYPE));
            return Err(Error::argument(format!("the elements of the tensor are {is}, got a slice of {got}")));
        }
        Ok((info.data.cast(), info.dims.iter().product()))
    }

    /// The elements; another type than theirs is refused.
    pub fn data<T: Element>(&self) -> Result<&[T]> {
        let (at, count) = self.place::<T>()?;
        // SAFETY: the memory belongs to the tensor; one without elements may have no place.
        Ok(if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(at, count) } })
    }

    /// The elements, to be changed.
    pub fn data_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        let (at, count) = self.place::<T>()?;
        // SAFETY: as data(), and the reference to the tensor is the only one.
        Ok(if count == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(at, count) } })
    }

    /// Copies the elements of another tensor of the same type and shape.
    pub fn copy_from(&mut self, from: &View<'_>) -> Result<()> {
        // SAFETY: both handles live during the call.
        unsafe { check(ds_sys::ds_tensor_copy(self.raw, from.raw)) }
    }

    /// This tensor as an argument of a call.
    pub fn view(&self) -> View<'_> {
        View { raw: self.raw, made: false, _data: PhantomData }
    }
}

/// Elements that a call reads, where they lie.
pub struct View<'a> {
    raw: *mut ds_sys::ds_tensor,
    made: bool,
    _data: PhantomData<&'a ()>,
}

impl<'a> View<'a> {
    /// Of a slice, without a copy. `dims` must have as many elements as `data`. A slice lies together, so a view of columns of a
    /// matrix cannot be made.
    pub fn of<T: Element>(data: &'a [T], dims: &[usize]) -> Result<View<'a>> {
        let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        if count != Some(data.len()) {
            return Err(refuse_count(dims, data.len()));
        }
        // SAFETY: the memory outlives the view, and libds only reads tensors that calls take as inputs and gradients.
        let raw = unsafe { create::<T>(dims, data.as_ptr() as *mut std::ffi::c_void)? };
        Ok(View { raw, made: true, _data: PhantomData })
    }

    /// Where the elements lie.
    pub fn address(&self) -> Result<*const u8> {
        Ok(info_of(self.raw)?.data as *const u8)
    }

    pub(crate) fn raw(&self) -> *const ds_sys::ds_tensor {
        self.raw
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        if self.made {
            // SAFETY: the view has made the handle; the memory stays the caller's.
            unsafe { ds_sys::ds_tensor_destroy(self.raw) }
        }
    }
}
