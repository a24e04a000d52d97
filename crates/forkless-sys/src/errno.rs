//! Error numbers, as a type of their own.

use core::fmt;
use linux_raw_sys::errno as e;

/// An error number as the kernel returned it (`errno(3)`), never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Errno(i32);

macro_rules! errnos {
    ($($name:ident),* $(,)?) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "`, see `errno(3)`.")] pub const $name: Errno = Errno(e::$name as i32);)*

            /// The symbolic name if this crate has it as a constant.
            #[inline]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Errno::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}
errnos!(
    E2BIG,
    EACCES,
    EAGAIN,
    EBADF,
    EBUSY,
    ECHILD,
    EEXIST,
    EFAULT,
    EFBIG,
    EINTR,
    EINVAL,
    EIO,
    EISDIR,
    ELIBBAD,
    ELOOP,
    EMFILE,
    ENAMETOOLONG,
    ENFILE,
    ENODEV,
    ENOENT,
    ENOEXEC,
    ENOMEM,
    ENOSPC,
    ENOSYS,
    ENOTDIR,
    ENOTTY,
    ENXIO,
    EOPNOTSUPP,
    EOVERFLOW,
    EPERM,
    EPIPE,
    ERANGE,
    EROFS,
    ESPIPE,
    ESRCH,
    ESTALE,
    ETIMEDOUT,
    ETXTBSY,
    EUSERS,
    EXDEV,
);

impl Errno {
    /// From a positive error number. Any other number becomes `EINVAL`: an `Errno` is never a
    /// success.
    #[inline]
    pub const fn from_raw(raw: i32) -> Errno {
        if raw > 0 && raw < 4096 { Errno(raw) } else { Errno::EINVAL }
    }

    /// The positive error number.
    #[inline]
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// Splits the kernel's answer: `-4095..=-1` is an error (`include/linux/err.h`,
    /// `IS_ERR_VALUE`).
    #[inline(always)]
    pub const fn check(ret: isize) -> crate::Result<usize> {
        if ret < 0 && ret >= -4095 { Err(Errno(-ret as i32)) } else { Ok(ret as usize) }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(n) => f.write_str(n),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl core::error::Error for Errno {}
