//! Error numbers and strings.

use forkless_sys::{CPtr, Errno};

#[test]
fn an_answer_is_an_error_from_minus_4095_to_minus_1() {
    assert_eq!(Errno::check(-2), Err(Errno::ENOENT));
    assert_eq!(Errno::check(-4095).map_err(Errno::raw), Err(4095));
    assert_eq!(Errno::check(-4096), Ok(usize::MAX - 4095), "an address");
}

#[test]
fn an_error_number_has_a_name_and_is_never_a_success() {
    assert_eq!((Errno::ENOENT.raw(), Errno::from_raw(9)), (2, Errno::EBADF));
    assert_eq!((Errno::from_raw(-9), Errno::from_raw(0)), (Errno::EINVAL, Errno::EINVAL));
    assert_eq!((Errno::from_raw(2).name(), Errno::from_raw(4000).name()), (Some("ENOENT"), None));
    assert_eq!(format!("{} {:?}", Errno::ENOENT, Errno::from_raw(4000)), "ENOENT errno 4000");
}

#[test]
fn a_string_known_by_its_address_is_the_string() {
    let text = c"/tmp";
    let path = CPtr::from(text);
    assert_eq!((path.to_c_str(), path.as_ptr()), (text, text.as_ptr()));
}
