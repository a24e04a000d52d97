//! The native half of the Python package `forkless`: it translates between Python's objects and
//! crate `forkless`, and decides nothing. Searches, defaults, messages and policies are in the
//! Python files beside it.
//!
//! **It keeps no Python object.** Each subinterpreter loads it, some with a lock of their own, and
//! an object belongs to one interpreter. PyO3 keeps the types of `#[pyclass]` and
//! `create_exception!`, and the strings of `intern!`, in statics; so none of them is used here.
//! Functions return tuples, numbers and capsules, and `python/forkless/_native.py` makes classes of
//! them.
#![expect(unsafe_code, reason = "the module's definition: PyO3's has no place for subinterpreters")]

mod builtin;
mod drain;
mod shell;
mod spawn;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCFunction;
use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null_mut, without_provenance_mut};

/// Adds a function to the module.
///
/// Not by `PyModule::add_function`, which interns `__all__` in a static.
pub(crate) fn add(
    module: &Bound<'_, PyModule>,
    name: &CStr,
    function: Bound<'_, PyCFunction>,
) -> PyResult<()> {
    // SAFETY: attached, as `module` shows; the three are valid for the call.
    let set = unsafe { ffi::PyObject_SetAttrString(module.as_ptr(), name.as_ptr(), function.as_ptr()) };
    if set < 0 { Err(PyErr::fetch(module.py())) } else { Ok(()) }
}

fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    spawn::register(module)?;
    drain::register(module)?;
    shell::register(module)?;
    builtin::register(module)
}

unsafe extern "C" fn exec(module: *mut ffi::PyObject) -> c_int {
    // SAFETY: Python runs a module's slots in an attached thread.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: Python passes the module that it has made, and keeps it for the call.
    let module = unsafe { Bound::from_borrowed_ptr(py, module) };
    let registered = module.cast_into::<PyModule>().map_err(PyErr::from).and_then(|m| register(&m));
    match registered {
        Ok(()) => 0,
        Err(e) => {
            e.restore(py);
            -1
        }
    }
}

/// Python changes the definition when it first sees it, and from then on only reads it.
#[repr(transparent)]
struct Definition(UnsafeCell<ffi::PyModuleDef>);

// SAFETY: Python takes care that one thread initializes it (PyModuleDef_Init); nothing here reads
// or writes it.
unsafe impl Sync for Definition {}

#[repr(transparent)]
struct Slots<const N: usize>(UnsafeCell<[ffi::PyModuleDef_Slot; N]>);

// SAFETY: as above.
unsafe impl<const N: usize> Sync for Slots<N> {}

// Include/moduleobject.h; the stable ABI of 3.9 does not have them yet.
const PY_MOD_MULTIPLE_INTERPRETERS: c_int = 3;
const PY_MOD_PER_INTERPRETER_GIL_SUPPORTED: *mut c_void = without_provenance_mut(2);
const PY_MOD_GIL: c_int = 4;
const PY_MOD_GIL_NOT_USED: *mut c_void = without_provenance_mut(1);

const EXEC: ffi::PyModuleDef_Slot =
    ffi::PyModuleDef_Slot { slot: ffi::Py_mod_exec, value: exec as *mut c_void };
const INTERPRETERS: ffi::PyModuleDef_Slot =
    ffi::PyModuleDef_Slot { slot: PY_MOD_MULTIPLE_INTERPRETERS, value: PY_MOD_PER_INTERPRETER_GIL_SUPPORTED };
const NO_GIL: ffi::PyModuleDef_Slot = ffi::PyModuleDef_Slot { slot: PY_MOD_GIL, value: PY_MOD_GIL_NOT_USED };
const END: ffi::PyModuleDef_Slot = ffi::PyModuleDef_Slot { slot: 0, value: null_mut() };

// An interpreter refuses a module with a slot that it does not know.
static SLOTS_3_9: Slots<2> = Slots(UnsafeCell::new([EXEC, END]));
static SLOTS_3_12: Slots<3> = Slots(UnsafeCell::new([EXEC, INTERPRETERS, END]));
static SLOTS_3_13: Slots<4> = Slots(UnsafeCell::new([EXEC, INTERPRETERS, NO_GIL, END]));

const fn definition(slots: *mut ffi::PyModuleDef_Slot) -> Definition {
    Definition(UnsafeCell::new(ffi::PyModuleDef {
        m_base: ffi::PyModuleDef_HEAD_INIT,
        m_name: c"_forkless".as_ptr(),
        m_doc: c"The native half of the package forkless.".as_ptr(),
        m_size: 0,
        m_methods: null_mut(),
        m_slots: slots,
        m_traverse: None,
        m_clear: None,
        m_free: None,
    }))
}

static MODULE_3_9: Definition = definition(SLOTS_3_9.0.get().cast());
static MODULE_3_12: Definition = definition(SLOTS_3_12.0.get().cast());
static MODULE_3_13: Definition = definition(SLOTS_3_13.0.get().cast());

/// The minor version of the interpreter, which may be newer than the ABI that this is built for.
fn minor() -> u32 {
    // SAFETY: may be called by any thread at any time.
    let version = unsafe { ffi::Py_GetVersion() };
    // SAFETY: a static string.
    let version = unsafe { CStr::from_ptr(version) };
    let version = version.to_str().unwrap_or_default();
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse().ok());
    minor.unwrap_or(9)
}

/// Called by Python's import.
#[unsafe(no_mangle)]
extern "C" fn PyInit__forkless() -> *mut ffi::PyObject {
    let definition = match minor() {
        0..12 => &MODULE_3_9,
        12 => &MODULE_3_12,
        13.. => &MODULE_3_13,
    };
    // SAFETY: a static, as Python asks for; called by its import, so attached.
    unsafe { ffi::PyModuleDef_Init(definition.0.get()) }
}
