//! A terminal of our own, with `parti` on it.

#![allow(dead_code, reason = "the bench needs less of it than the tests")]

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

const PATIENCE: Duration = Duration::from_secs(120);

/// A terminal with `parti` on it.
pub struct Tty {
    keyboard: File,
    /// Our own end of the program's side: it keeps the terminal open, and tells its settings.
    side: File,
    heard: Receiver<Vec<u8>>,
    text: String,
    pub child: Child,
}

impl Tty {
    /// A terminal of so many columns and rows.
    pub fn start(folder: &Path, arguments: &[&str], columns: u16, rows: u16) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&controller).expect("granted");
        unlockpt(&controller).expect("unlocked");
        let name = ptsname(&controller, Vec::new()).expect("a name");
        let name = name.to_str().expect("text").to_owned();
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&controller, size).expect("sized");
        let open = || File::options().read(true).write(true).open(&name);
        let side = open().expect("opened");
        let child = Command::new(env!("CARGO_BIN_EXE_parti"))
            .current_dir(folder)
            .args(arguments)
            .env_remove("NO_COLOR")
            .env("TERM", "xterm-256color")
            .stdin(open().expect("opened"))
            .stdout(open().expect("opened"))
            .stderr(open().expect("opened"))
            .spawn()
            .expect("runs");
        let keyboard = File::from(controller);
        let screen = keyboard.try_clone().expect("cloned");
        Self {
            heard: listen(screen),
            keyboard,
            side,
            text: String::new(),
            child,
        }
    }

    /// Reads until all of these were drawn.
    #[track_caller]
    pub fn until(&mut self, texts: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        while !texts.iter().all(|text| self.text.contains(text)) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.heard.recv_timeout(left) {
                Ok(bytes) => self.text.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("no {texts:?} in {:?}", self.text),
            }
        }
    }

    /// Types.
    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("pressed");
    }

    /// Whether the terminal waits for whole lines and shows what is typed, as it was found.
    pub fn is_ordinary(&self) -> bool {
        let modes = tcgetattr(&self.side).expect("settings").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits for the program's end.
    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("asked") {
                return status;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        panic!("it did not end: {:?}", self.text);
    }
}

/// The screen, on a thread of its own: reading has no patience.
fn listen(mut screen: File) -> Receiver<Vec<u8>> {
    let (to, heard) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count) = screen.read(&mut bytes) {
            if count == 0 || to.send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    heard
}
