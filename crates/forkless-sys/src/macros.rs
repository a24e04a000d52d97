//! One line for each system call: its number and arguments, each turned into a [`crate::Reg`] by its type.

macro_rules! call {
    ($nr:ident $(, $arg:expr)* $(,)?) => {{
        #[allow(unused_mut, unused_assignments, reason = "calls without arguments")]
        let args = {
            let mut args = [$crate::Reg::ZERO; 6];
            let mut i = 0;
            $( args[i] = $crate::Reg::from($arg); i += 1; )*
            let _ = i;
            args
        };
        $crate::Errno::check($crate::raw::syscall(linux_raw_sys::general::$nr, args))
    }};
}
