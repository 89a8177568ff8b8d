use crate::{check, Error, Result};
use std::marker::PhantomData;

mod sealed {
    pub trait Sealed {}
}

/// An element type of tensors and collectives.
pub trait Element: Copy + Default + PartialEq + std::fmt::Debug + Send + Sync + sealed::Sealed + 'static {
    const DTYPE: ds_sys::ds_dtype;
    /// The type of a sum: f32 for 16-bit floats, which are summed in f32; otherwise the type itself.
    type Sum: Element;
}

/// The bits of a bfloat16 number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Bf16(pub u16);

/// The bits of an IEEE half-precision number.
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

/// Returns the name of an element type, as in messages of libds.
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

/// Converts dimensions for libds. A dimension beyond i64 becomes i64::MAX, which libds refuses.
pub(crate) fn dims_of(dims: &[usize]) -> Vec<i64> {
    dims.iter().map(|&d| i64::try_from(d).unwrap_or(i64::MAX)).collect()
}

pub(crate) fn refuse_count(dims: &[usize], count: usize) -> Error {
    let needed = dims.iter().fold(1usize, |n, &d| n.saturating_mul(d));
    Error::argument(format!("data of shape {dims:?} must have {needed} elements, got {count}"))
}

/// A tensor on the host that owns its memory.
///
/// Dropping it frees its memory, so the compiler refuses code that would read it later:
///
/// ```compile_fail,E0505
/// let tensor = ds::Tensor::zeros::<f32>(&[2]).unwrap();
/// let data = tensor.data::<f32>().unwrap();
/// drop(tensor);
/// println!("{data:?}");
/// ```
pub struct Tensor {
    pub(crate) raw: *mut ds_sys::ds_tensor,
    // True if another library owns the memory and lends it for reading only.
    pub(crate) readonly: bool,
}

// SAFETY: distinct handles are independent; a tensor is used by one thread at a time, as it is not Sync.
unsafe impl Send for Tensor {}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle; views borrow the tensor.
        unsafe { ds_sys::ds_tensor_destroy(self.raw) }
    }
}

/// Creates a tensor of elements T. If `data` is NULL, the tensor has its own memory, filled with zeros. With a stream,
/// it is on the stream's device.
///
/// # Safety
/// `data` is NULL, or has the elements that `dims` and `strides` say and outlives the tensor; the stream lives.
pub(crate) unsafe fn create<T: Element>(
    dims: &[usize],
    strides: Option<&[i64]>,
    data: *mut std::ffi::c_void,
    stream: *mut ds_sys::ds_stream,
) -> Result<*mut ds_sys::ds_tensor> {
    let dims = dims_of(dims);
    let strides = strides.map_or(std::ptr::null(), <[i64]>::as_ptr);
    let mut raw = std::ptr::null_mut();
    check(ds_sys::ds_tensor_create(T::DTYPE, dims.as_ptr(), dims.len(), strides, data, stream, &mut raw))?;
    Ok(raw)
}

pub(crate) struct Info {
    pub dtype: ds_sys::ds_dtype,
    pub dims: Vec<usize>,
    pub strides: Vec<i64>,
    pub device: &'static str,
    pub data: *mut std::ffi::c_void,
}

impl Info {
    // Returns the elements as a slice. They must be of type T, on the host and contiguous.
    pub(crate) fn slice<T: Element>(&self) -> Result<(*mut T, usize)> {
        if self.dtype != T::DTYPE {
            let (is, got) = (dtype_name(self.dtype), dtype_name(T::DTYPE));
            return Err(Error::argument(format!("the elements of the tensor are {is}, got a slice of {got}")));
        }
        if self.device != "cpu" {
            return Err(Error::argument(format!("the tensor must be on the host for a slice, got device '{}'", self.device)));
        }
        let count = self.dims.iter().product();
        let mut compact = 1i64;
        for (&dim, &stride) in self.dims.iter().zip(&self.strides).rev() {
            if count > 0 && dim != 1 && stride != compact {
                return Err(Error::argument(format!("the tensor must be compact for a slice, got strides {:?}", self.strides)));
            }
            compact = compact.wrapping_mul(dim as i64);
        }
        Ok((self.data.cast(), count))
    }
}

/// Returns the description of a tensor by the only call of ds_tensor_info.
pub(crate) fn info_of(raw: *const ds_sys::ds_tensor) -> Result<Info> {
    let (mut dtype, mut dims, mut strides, mut count) = (0, [0i64; 8], [0i64; 8], 0);
    let (mut device, mut data) = (std::ptr::null(), std::ptr::null_mut());
    // SAFETY: every output is valid during the call, and the name of the device lives as long as the process.
    unsafe {
        let (dims, strides) = (dims.as_mut_ptr(), strides.as_mut_ptr());
        check(ds_sys::ds_tensor_info(raw, &mut dtype, dims, strides, 8, &mut count, &mut device, &mut data))?;
        let device = std::ffi::CStr::from_ptr(device).to_str().unwrap_or("");
        let dims = std::slice::from_raw_parts(dims, count).iter().map(|&d| d as usize).collect();
        Ok(Info { dtype, dims, strides: std::slice::from_raw_parts(strides, count).to_vec(), device, data })
    }
}

/// # Safety
/// The memory outlives the slice, and nobody writes it meanwhile.
unsafe fn slice_of<'a, T: Element>(raw: *const ds_sys::ds_tensor) -> Result<&'a [T]> {
    let (at, count) = info_of(raw)?.slice::<T>()?;
    // Without elements, the address may be NULL.
    Ok(if count == 0 { &[] } else { std::slice::from_raw_parts(at, count) })
}

impl Tensor {
    /// Creates a tensor of zeros.
    pub fn zeros<T: Element>(dims: &[usize]) -> Result<Tensor> {
        // SAFETY: without data libds allocates the memory.
        Ok(Tensor::own(unsafe { create::<T>(dims, None, std::ptr::null_mut(), std::ptr::null_mut())? }))
    }

    /// Creates a tensor with a copy of `data`.
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
        Tensor { raw, readonly: false }
    }

    /// Dimensions.
    pub fn dims(&self) -> Result<Vec<usize>> {
        Ok(info_of(self.raw)?.dims)
    }

    /// The distance between neighbours in each dimension, in elements.
    pub fn strides(&self) -> Result<Vec<i64>> {
        Ok(info_of(self.raw)?.strides)
    }

    /// Returns the elements. Fails if they are not of type T or not contiguous.
    pub fn data<T: Element>(&self) -> Result<&[T]> {
        // SAFETY: the memory belongs to the tensor.
        unsafe { slice_of(self.raw) }
    }

    /// Returns the elements for writing. Fails like [`Tensor::data`], and if another library lends the memory for
    /// reading only.
    pub fn data_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        if self.readonly {
            return Err(Error::argument("the tensor must be writable, its library lends it for reading".to_string()));
        }
        let (at, count) = info_of(self.raw)?.slice::<T>()?;
        // SAFETY: as data(), and the reference to the tensor is the only one.
        Ok(if count == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(at, count) } })
    }

    /// Copies the elements of another tensor of the same type and shape, whatever its strides.
    pub fn copy_from(&mut self, from: &View<'_>) -> Result<()> {
        // SAFETY: both handles live during the call, which has copied when it returns.
        unsafe { check(ds_sys::ds_tensor_copy(self.raw, from.raw, std::ptr::null_mut())) }
    }

    /// Returns this tensor as an argument of a call.
    pub fn view(&self) -> View<'_> {
        View::lent(self.raw)
    }
}

/// Elements that a call reads in place.
pub struct View<'a> {
    raw: *mut ds_sys::ds_tensor,
    made: bool,
    _data: PhantomData<&'a ()>,
}

impl<'a> View<'a> {
    /// Views a slice without a copy. `dims` must have as many elements as `data`.
    pub fn of<T: Element>(data: &'a [T], dims: &[usize]) -> Result<View<'a>> {
        let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        if count != Some(data.len()) {
            return Err(refuse_count(dims, data.len()));
        }
        // SAFETY: the memory outlives the view, and libds only reads tensors that calls take as inputs and gradients.
        let at = data.as_ptr() as *mut std::ffi::c_void;
        Ok(View { raw: unsafe { create::<T>(dims, None, at, std::ptr::null_mut())? }, made: true, _data: PhantomData })
    }

    /// Views elements of a slice with gaps, without a copy. The element at index 0 is data\[first\], and neighbours in
    /// dimension i are strides\[i\] elements apart.
    pub fn strided<T: Element>(data: &'a [T], first: usize, dims: &[usize], strides: &[i64]) -> Result<View<'a>> {
        if dims.len() != strides.len() {
            return Err(Error::argument(format!("strides must be {}, one for each dimension, got {}", dims.len(), strides.len())));
        }
        let (mut least, mut most) = (first as i128, first as i128);
        for (&dim, &stride) in dims.iter().zip(strides) {
            let reach = (dim as i128 - 1).max(0) * i128::from(stride);
            least += reach.min(0);
            most += reach.max(0);
        }
        if !dims.contains(&0) && (least < 0 || most >= data.len() as i128) {
            let count = data.len();
            return Err(Error::argument(format!("the view reaches elements {least} to {most}, got a slice of {count}")));
        }
        // SAFETY: every element is part of the slice, which outlives the view and is only read.
        let at = unsafe { data.as_ptr().add(first.min(data.len())) } as *mut std::ffi::c_void;
        let raw = unsafe { create::<T>(dims, Some(strides), at, std::ptr::null_mut())? };
        Ok(View { raw, made: true, _data: PhantomData })
    }

    // A view over a handle that somebody else frees.
    pub(crate) fn lent(raw: *mut ds_sys::ds_tensor) -> View<'a> {
        View { raw, made: false, _data: PhantomData }
    }

    /// Dimensions.
    pub fn dims(&self) -> Result<Vec<usize>> {
        Ok(info_of(self.raw)?.dims)
    }

    /// Returns the elements. Fails if they are not of type T or not contiguous.
    pub fn data<T: Element>(&self) -> Result<&'a [T]> {
        // SAFETY: the memory outlives the view and is only read.
        unsafe { slice_of(self.raw) }
    }

    /// Returns the address of the elements.
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
