//! Builtin functions that call Python's.
//!
//! A function written in Python becomes a method where a class has it as an attribute. A builtin
//! one does not, so what takes its place has to be one, too.
#![expect(unsafe_code, reason = "PyO3 makes builtin functions of Rust's functions alone")]

use crate::add;
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::ffi::{CStr, CString};
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

/// The attribute of the function's `__self__` that is called.
const CALLED: &CStr = c"called";

/// Definitions of functions. Python reads them for as long as a function lives, and a program may
/// keep one for ever, so none is freed. There is one for each name and text, however often a
/// program asks.
static DEFINITIONS: Mutex<Vec<Definition>> = Mutex::new(Vec::new());

struct Definition(&'static mut ffi::PyMethodDef);

// SAFETY: it has pointers to strings that are never freed, and to a function.
unsafe impl Send for Definition {}

impl Definition {
    fn is_of(&self, name: &CStr, doc: &CStr) -> bool {
        // SAFETY: `new` has made both of strings, which are never freed.
        let text = |of| unsafe { CStr::from_ptr(of) };
        text(self.0.ml_name) == name && text(self.0.ml_doc) == doc
    }

    fn new(name: CString, doc: CString) -> Self {
        Self(Box::leak(Box::new(ffi::PyMethodDef {
            ml_name: name.into_raw(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunctionWithKeywords: call },
            ml_flags: ffi::METH_VARARGS | ffi::METH_KEYWORDS,
            ml_doc: doc.into_raw(),
        })))
    }
}

unsafe extern "C" fn call(
    of: *mut ffi::PyObject,
    args: *mut ffi::PyObject,
    kwargs: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: Python calls it in an attached thread, with the function's `__self__`.
    let called = unsafe { ffi::PyObject_GetAttrString(of, CALLED.as_ptr()) };
    if called.is_null() {
        return null_mut();
    }
    // SAFETY: attached; `called` is ours, and the others are Python's for the call.
    let answer = unsafe { ffi::PyObject_Call(called, args, kwargs) };
    // SAFETY: the reference that PyObject_GetAttrString gave, not used again.
    unsafe { ffi::Py_DECREF(called) };
    answer
}

/// A builtin function of this name. It calls what `of`, its `__self__`, has as its attribute
/// `called`, with the same arguments.
#[pyfunction]
fn builtin<'py>(
    of: &Bound<'py, PyAny>,
    name: &str,
    doc: &str,
    module: &Bound<'py, PyString>,
) -> PyResult<Bound<'py, PyAny>> {
    let text = |text| CString::new(text).map_err(|_| PyValueError::new_err("embedded null byte"));
    let (name, doc) = (text(name)?, text(doc)?);
    // Nothing of Python's runs under the lock.
    let definition: *mut ffi::PyMethodDef = {
        let mut all = DEFINITIONS.lock().unwrap_or_else(PoisonError::into_inner);
        let at = all.iter().position(|one| one.is_of(&name, &doc)).unwrap_or_else(|| {
            all.push(Definition::new(name, doc));
            all.len() - 1
        });
        &raw mut *all[at].0
    };
    // SAFETY: attached; the definition is never freed; both objects live, and Python counts its own
    // references to them.
    let made = unsafe { ffi::PyCFunction_NewEx(definition, of.as_ptr(), module.as_ptr()) };
    // SAFETY: a new reference, or null with an error set.
    unsafe { Bound::from_owned_ptr_or_err(of.py(), made) }
}

pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    add(module, c"builtin", wrap_pyfunction!(builtin, module)?)
}
