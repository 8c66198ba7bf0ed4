//! Keys that request a stop.

#[cfg(not(unix))]
use std::io;
#[cfg(not(unix))]
use std::time::Duration;

/// A key that the dashboard reacts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Interrupt,
}

#[cfg(unix)]
pub(super) use unix::Keys;

/// Reads bytes directly, since crossterm's events wait without limit for the rest of an escape sequence.
#[cfg(unix)]
mod unix {
    use std::fs::File;
    use std::io::{self, IsTerminal};
    use std::os::fd::{AsFd, BorrowedFd};
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::{Key, of_bytes};

    /// The source of keys.
    #[derive(Debug)]
    pub(in super::super) enum Keys {
        Input(io::Stdin),
        /// Used if standard input is not the terminal.
        Terminal(File),
    }

    impl Keys {
        pub(in super::super) fn new() -> io::Result<Self> {
            match io::stdin() {
                stdin if stdin.is_terminal() => Ok(Self::Input(stdin)),
                _ => Ok(Self::Terminal(File::open("/dev/tty")?)),
            }
        }

        fn fd(&self) -> BorrowedFd<'_> {
            match self {
                Self::Input(stdin) => stdin.as_fd(),
                Self::Terminal(file) => file.as_fd(),
            }
        }

        /// Waits at most `most` for a key.
        ///
        /// # Errors
        /// When the terminal is gone.
        pub(in super::super) fn wait(&self, most: Duration) -> io::Result<Option<Key>> {
            let mut fds = [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)];
            let timeout = Timespec::try_from(most).map_err(io::Error::other)?;
            if poll(&mut fds, Some(&timeout))? == 0 {
                return Ok(None);
            }
            let mut bytes = [0; 64];
            if !fds[0].revents().contains(PollFlags::IN) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            match rustix::io::read(self.fd(), &mut bytes)? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                count => Ok(of_bytes(&bytes[..count])),
            }
        }
    }
}

/// Arrows, reports and other keys of several bytes begin with an escape; letters after it are not keys. Ctrl-C counts
/// anywhere, since nothing else sends this byte.
#[cfg(unix)]
fn of_bytes(bytes: &[u8]) -> Option<Key> {
    const ESCAPE: u8 = 0x1b;
    const CTRL_C: u8 = 0x03;
    if bytes.contains(&CTRL_C) {
        return Some(Key::Interrupt);
    }
    let mut letters = bytes.iter().take_while(|&&byte| byte != ESCAPE);
    letters.any(|byte| *byte == b'q').then_some(Key::Quit)
}

/// The source of keys.
#[cfg(not(unix))]
#[derive(Debug)]
pub(super) struct Keys(());

#[cfg(not(unix))]
impl Keys {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(()))
    }

    /// Waits at most `most` for a key.
    ///
    /// # Errors
    /// When the terminal is gone.
    pub(super) fn wait(&self, most: Duration) -> io::Result<Option<Key>> {
        use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

        if !event::poll(most)? {
            return Ok(None);
        }
        Ok(match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => match key.code {
                KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Interrupt),
                KeyCode::Char('q') => Some(Key::Quit),
                _ => None,
            },
            _ => None,
        })
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn keys_of_several_bytes_are_none_of_ours() {
        assert_eq!(of_bytes(b"xq"), Some(Key::Quit));
        assert_eq!(of_bytes(b"\x03"), Some(Key::Interrupt));
        assert_eq!(of_bytes(b"\x1b[A\x03"), Some(Key::Interrupt));
        for other in [&b"\x1b["[..], b"\x1b[0 q", b"\x1bq", b"x", b"\xc3\xa9"] {
            assert_eq!(of_bytes(other), None, "{other:?}");
        }
    }
}
