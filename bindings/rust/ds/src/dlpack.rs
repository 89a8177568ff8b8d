//! Tensors of other libraries, without copies, by DLPack: both its structs, and [`Managed`], which owns one.
use crate::tensor::{dims_of, refuse_count, Element};
use crate::{check, Error, Result, Tensor};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Where a tensor lies: kind 1 is host memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Device {
    pub kind: i32,
    pub index: i32,
}

/// Element type: code 0 is a signed integer, 1 an unsigned one, 2 a float, 4 a bfloat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Type {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

/// DLTensor.
#[derive(Debug)]
#[repr(C)]
pub struct Shape {
    pub data: *mut c_void,
    pub device: Device,
    pub dims_count: i32,
    pub dtype: Type,
    pub dims: *mut i64,
    /// In elements; NULL: compact row-major.
    pub strides: *mut i64,
    pub byte_offset: u64,
}

/// DLManagedTensor: its owner calls the deleter once.
#[derive(Debug)]
#[repr(C)]
pub struct ManagedTensor {
    pub tensor: Shape,
    pub context: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

fn type_of<T: Element>() -> Type {
    let code = match T::DTYPE {
        ds_sys::DS_DTYPE_I32 | ds_sys::DS_DTYPE_I64 => 0,
        ds_sys::DS_DTYPE_U8 => 1,
        ds_sys::DS_DTYPE_BF16 => 4,
        _ => 2,
    };
    Type { code, bits: 8 * std::mem::size_of::<T>() as u8, lanes: 1 }
}

/// A DLPack tensor that is nobody else's. It is given back when it is dropped.
pub struct Managed {
    raw: NonNull<ManagedTensor>,
}

// SAFETY: from_raw() asks for a tensor that any thread may use and give back.
unsafe impl Send for Managed {}

impl Drop for Managed {
    fn drop(&mut self) {
        // SAFETY: the tensor is alive, and its owner calls the deleter once.
        unsafe {
            if let Some(deleter) = self.raw.as_ref().deleter {
                deleter(self.raw.as_ptr());
            }
        }
    }
}

// Of a tensor whose memory is a Vec.
struct Lender<T> {
    managed: ManagedTensor,
    dims: Vec<i64>,
    _data: Vec<T>,
}

unsafe extern "C" fn give_back<T>(managed: *mut ManagedTensor) {
    drop(Box::from_raw((*managed).context.cast::<Lender<T>>()));
}

impl Managed {
    /// Takes a DLPack tensor over, for example the content of a capsule of Python; None for NULL.
    ///
    /// # Safety
    /// `raw` is NULL or a DLPack tensor whose deleter was not called. Nobody else reads or writes its memory until the deleter is
    /// called, and any thread may do both.
    pub unsafe fn from_raw(raw: *mut ManagedTensor) -> Option<Managed> {
        NonNull::new(raw).map(|raw| Managed { raw })
    }

    /// For a consumer, who calls the deleter.
    pub fn into_raw(self) -> *mut ManagedTensor {
        let raw = self.raw.as_ptr();
        std::mem::forget(self);
        raw
    }

    /// What it says about its elements.
    pub fn tensor(&self) -> &Shape {
        // SAFETY: the tensor is alive.
        unsafe { &self.raw.as_ref().tensor }
    }

    /// Of a vector, whose memory stays where it is.
    pub fn from_vec<T: Element>(mut data: Vec<T>, dims: &[usize]) -> Result<Managed> {
        if dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)) != Some(data.len()) {
            return Err(refuse_count(dims, data.len()));
        }
        let mut dims = dims_of(dims);
        let tensor = Shape {
            data: data.as_mut_ptr().cast(),
            device: Device { kind: 1, index: 0 },
            dims_count: dims.len() as i32,
            dtype: type_of::<T>(),
            dims: dims.as_mut_ptr(),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        };
        let managed = ManagedTensor { tensor, context: std::ptr::null_mut(), deleter: Some(give_back::<T>) };
        let lender = Box::into_raw(Box::new(Lender { managed, dims, _data: data }));
        // SAFETY: the lender is alive until its deleter ends it.
        unsafe {
            (*lender).managed.context = lender.cast();
            debug_assert!((*lender).managed.tensor.dims == (*lender).dims.as_mut_ptr());
            Ok(Managed { raw: NonNull::new_unchecked(std::ptr::addr_of_mut!((*lender).managed)) })
        }
    }
}

impl Tensor {
    /// Takes a tensor of another library without a copy; it is given back when this one is dropped, or at once when libds refuses
    /// it. It lies in host memory, compact and row-major.
    pub fn from_dlpack(managed: Managed) -> Result<Tensor> {
        let mut out = std::ptr::null_mut();
        // SAFETY: the tensor is alive; libds owns it from here on, unless it refuses it.
        unsafe { check(ds_sys::ds_tensor_from_dlpack(managed.raw.as_ptr().cast(), &mut out))? };
        std::mem::forget(managed);
        Ok(Tensor::own(out))
    }

    /// For another library, without a copy.
    pub fn into_dlpack(self) -> Result<Managed> {
        let mut out = std::ptr::null_mut();
        // SAFETY: the handle lives; what comes out keeps the memory when the handle has ended, and is its only user then.
        unsafe { check(ds_sys::ds_tensor_to_dlpack(self.raw, &mut out))? };
        NonNull::new(out.cast::<ManagedTensor>())
            .map(|raw| Managed { raw })
            .ok_or_else(|| Error::argument("libds gave no DLPack tensor".to_string()))
    }

    /// Takes the memory of a vector without a copy.
    pub fn from_vec<T: Element>(data: Vec<T>, dims: &[usize]) -> Result<Tensor> {
        Tensor::from_dlpack(Managed::from_vec(data, dims)?)
    }
}
