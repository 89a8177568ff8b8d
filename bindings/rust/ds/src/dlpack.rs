//! Exchange of tensors with other libraries by DLPack, without copies: the two structs of DLPack, and [`Managed`],
//! which owns such a tensor.
use crate::tensor::{dims_of, refuse_count, Element};
use crate::{check, Result, Tensor};
use std::ffi::c_void;

/// The device of a tensor: kind 1 is host memory.
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
    /// Strides in elements; NULL means compact row-major.
    pub strides: *mut i64,
    pub byte_offset: u64,
}

/// DLManagedTensor. The owner calls the deleter once.
#[derive(Debug)]
#[repr(C)]
pub struct ManagedTensor {
    pub tensor: Shape,
    pub context: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// DLManagedTensorVersioned, of DLPack 1.x.
#[derive(Debug)]
#[repr(C)]
pub struct ManagedTensorVersioned {
    pub major: u32,
    pub minor: u32,
    pub context: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedTensorVersioned)>,
    /// Bit 0: the memory may only be read.
    pub flags: u64,
    pub tensor: Shape,
}

/// A DLPack tensor of either form, as libraries pass it to each other.
#[derive(Clone, Copy, Debug)]
pub enum Raw {
    Unversioned(*mut ManagedTensor),
    Versioned(*mut ManagedTensorVersioned),
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

/// A DLPack tensor that only this value owns. Dropping the value calls the deleter.
pub struct Managed {
    raw: Raw,
}

// SAFETY: from_raw() requires a tensor that any thread may use and free.
unsafe impl Send for Managed {}

impl Drop for Managed {
    fn drop(&mut self) {
        // SAFETY: the tensor is alive, and its owner calls the deleter once.
        unsafe {
            match self.raw {
                Raw::Unversioned(raw) => (*raw).deleter.map_or((), |end| end(raw)),
                Raw::Versioned(raw) => (*raw).deleter.map_or((), |end| end(raw)),
            }
        }
    }
}

// The owner of a tensor whose memory is a Vec.
struct Lender<T> {
    managed: ManagedTensor,
    dims: Vec<i64>,
    _data: Vec<T>,
}

unsafe extern "C" fn give_back<T>(managed: *mut ManagedTensor) {
    drop(Box::from_raw((*managed).context.cast::<Lender<T>>()));
}

impl Managed {
    /// Takes over a DLPack tensor, for example the content of a Python capsule. Returns None for NULL.
    ///
    /// # Safety
    /// The address is NULL or that of a DLPack tensor whose deleter was not called. Until the deleter is called, nobody
    /// else writes the memory or, unless it is lent for reading only, reads it. Any thread may use the memory and call
    /// the deleter.
    pub unsafe fn from_raw(raw: Raw) -> Option<Managed> {
        let null = match raw {
            Raw::Unversioned(at) => at.is_null(),
            Raw::Versioned(at) => at.is_null(),
        };
        if null { None } else { Some(Managed { raw }) }
    }

    /// Returns the tensor for a consumer, which must call the deleter.
    pub fn into_raw(self) -> Raw {
        let raw = self.raw;
        std::mem::forget(self);
        raw
    }

    /// Returns the description of the tensor: device, type, dimensions and strides.
    pub fn tensor(&self) -> &Shape {
        // SAFETY: the tensor is alive.
        match self.raw {
            Raw::Unversioned(at) => unsafe { &(*at).tensor },
            Raw::Versioned(at) => unsafe { &(*at).tensor },
        }
    }

    /// Returns whether another library lends the memory for reading only.
    pub fn is_readonly(&self) -> bool {
        // SAFETY: the tensor is alive.
        matches!(self.raw, Raw::Versioned(at) if unsafe { (*at).flags & 1 != 0 })
    }

    /// Creates a DLPack tensor from a vector, whose memory stays in place.
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
            Ok(Managed { raw: Raw::Unversioned(std::ptr::addr_of_mut!((*lender).managed)) })
        }
    }
}

impl Tensor {
    /// Imports a tensor of another library without a copy. It must be in host memory. It is freed when the new tensor
    /// is dropped, or at once if libds refuses it.
    pub fn from_dlpack(managed: Managed) -> Result<Tensor> {
        let (mut old, mut new, mut out) = (std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut());
        match managed.raw {
            Raw::Unversioned(at) => old = at.cast(),
            Raw::Versioned(at) => new = at.cast(),
        }
        let readonly = managed.is_readonly();
        // SAFETY: the tensor is alive; libds owns it from here on, unless it refuses it.
        unsafe { check(ds_sys::ds_tensor_from_dlpack(old, new, std::ptr::null_mut(), &mut out))? };
        std::mem::forget(managed);
        Ok(Tensor { raw: out, readonly })
    }

    /// Exports the tensor for another library, without a copy, in the older form, which cannot express read-only
    /// memory.
    pub fn into_dlpack(self) -> Result<Managed> {
        let mut out = std::ptr::null_mut();
        // SAFETY: the handle lives; the export keeps the memory alive after the handle has ended, and is its only user
        // then.
        unsafe { check(ds_sys::ds_tensor_to_dlpack(self.raw, &mut out, std::ptr::null_mut()))? };
        Ok(Managed { raw: Raw::Unversioned(out.cast()) })
    }

    /// Exports the tensor in the form of DLPack 1.x.
    pub fn into_dlpack_versioned(self) -> Result<Managed> {
        let mut out = std::ptr::null_mut();
        // SAFETY: as in into_dlpack().
        unsafe { check(ds_sys::ds_tensor_to_dlpack(self.raw, std::ptr::null_mut(), &mut out))? };
        Ok(Managed { raw: Raw::Versioned(out.cast()) })
    }

    /// Takes the memory of a vector without a copy.
    pub fn from_vec<T: Element>(data: Vec<T>, dims: &[usize]) -> Result<Tensor> {
        Tensor::from_dlpack(Managed::from_vec(data, dims)?)
    }
}
