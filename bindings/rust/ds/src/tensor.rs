use crate::{check, Error, Result};
use std::marker::PhantomData;

mod sealed {
    pub trait Sealed {}
}

/// An element type of tensors. 16-bit floats are [`u16`] bit patterns elsewhere in libds and have no type here.
pub trait Element: Copy + Default + sealed::Sealed + 'static {
    const DTYPE: ds_sys::ds_dtype;
    /// Whether a sum of such elements has their type.
    const SUM_IS_ITS_OWN: bool = true;
}

macro_rules! element {
    ($type:ty, $dtype:ident) => {
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: ds_sys::ds_dtype = ds_sys::$dtype;
        }
    };
}
element!(f32, DS_DTYPE_F32);
element!(f64, DS_DTYPE_F64);
element!(i32, DS_DTYPE_I32);
element!(i64, DS_DTYPE_I64);
element!(u8, DS_DTYPE_U8);

fn dims_of(dims: &[usize]) -> Vec<i64> {
    dims.iter().map(|&d| i64::try_from(d).unwrap_or(i64::MAX)).collect()
}

/// A dense row-major tensor with memory of its own.
pub struct Tensor {
    raw: *mut ds_sys::ds_tensor,
}

// SAFETY: distinct handles are independent, and shared references only read.
unsafe impl Send for Tensor {}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: nobody else has the handle; views borrow the tensor.
        unsafe { ds_sys::ds_tensor_destroy(self.raw) }
    }
}

impl Tensor {
    /// Zeros.
    pub fn zeros<T: Element>(dims: &[usize]) -> Result<Tensor> {
        let dims = dims_of(dims);
        let mut raw = std::ptr::null_mut();
        // SAFETY: dims has dims.len() numbers; without data libds takes memory of its own.
        unsafe {
            check(ds_sys::ds_tensor_create(T::DTYPE, dims.as_ptr(), dims.len(), std::ptr::null_mut(), &mut raw))?;
        }
        Ok(Tensor { raw })
    }

    /// A copy of `data`.
    pub fn copy_of<T: Element>(data: &[T], dims: &[usize]) -> Result<Tensor> {
        let mut out = Tensor::zeros::<T>(dims)?;
        let to = out.data_mut::<T>()?;
        if to.len() != data.len() {
            return Err(Error::argument(format!("data of shape {dims:?} must have {} elements, got {}", to.len(), data.len())));
        }
        to.copy_from_slice(data);
        Ok(out)
    }

    pub(crate) fn own(raw: *mut ds_sys::ds_tensor) -> Tensor {
        Tensor { raw }
    }

    /// Dimensions.
    pub fn dims(&self) -> Result<Vec<usize>> {
        Ok(self.info()?.1)
    }

    fn info(&self) -> Result<(ds_sys::ds_dtype, Vec<usize>, *mut std::ffi::c_void)> {
        let (mut dtype, mut dims, mut count, mut data) = (0, [0i64; 8], 0, std::ptr::null_mut());
        // SAFETY: every output is valid during the call.
        unsafe {
            check(ds_sys::ds_tensor_info(self.raw, &mut dtype, dims.as_mut_ptr(), dims.len(), &mut count, &mut data))?;
        }
        Ok((dtype, dims[..count].iter().map(|&d| d as usize).collect(), data))
    }

    fn place<T: Element>(&self) -> Result<(*mut T, usize)> {
        let (dtype, dims, data) = self.info()?;
        if dtype != T::DTYPE {
            return Err(Error::argument(format!("the elements must be read as their type {dtype}, got {}", T::DTYPE)));
        }
        Ok((data.cast(), dims.iter().product()))
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
    /// Of a slice, without a copy. `dims` must have as many elements as `data`.
    pub fn of<T: Element>(data: &'a [T], dims: &[usize]) -> Result<View<'a>> {
        let count = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        if count != Some(data.len()) {
            return Err(Error::argument(format!("data of shape {dims:?} must have as many elements, got {}", data.len())));
        }
        let dims = dims_of(dims);
        let mut raw = std::ptr::null_mut();
        // SAFETY: the memory outlives the view, and libds only reads tensors that calls take as inputs and gradients.
        unsafe {
            let at = data.as_ptr() as *mut std::ffi::c_void;
            check(ds_sys::ds_tensor_create(T::DTYPE, dims.as_ptr(), dims.len(), at, &mut raw))?;
        }
        Ok(View { raw, made: true, _data: PhantomData })
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
