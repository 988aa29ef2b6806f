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
    sent: Vec<u8>,
    size: (usize, usize),
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
            sent: Vec::new(),
            size: (columns.into(), rows.into()),
            child,
        }
    }

    /// Reads until all of these are on the screen.
    #[track_caller]
    pub fn until(&mut self, texts: &[&str]) {
        self.wait(&format!("{texts:?}"), |tty| {
            let screen = tty.screen();
            let shown = |text: &&str| screen.iter().any(|line| line.contains(text));
            texts.iter().all(shown)
        });
    }

    /// Reads until all of these were sent.
    #[track_caller]
    pub fn until_sent(&mut self, texts: &[&str]) {
        self.wait(&format!("{texts:?}"), |tty| {
            let sent = String::from_utf8_lossy(&tty.sent);
            texts.iter().all(|text| sent.contains(text))
        });
    }

    #[track_caller]
    fn wait(&mut self, what: &str, enough: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !enough(self) {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.heard.recv_timeout(left) {
                Ok(bytes) => self.sent.extend(bytes),
                Err(_) => panic!("no {what} in\n{}", self.screen().join("\n")),
            }
        }
    }

    /// What is on the screen: of all that a terminal understands, text and moves of the cursor.
    pub fn screen(&self) -> Vec<String> {
        let (columns, rows) = self.size;
        let mut cells = vec![vec![' '; columns]; rows];
        let (mut x, mut y) = (0, 0);
        let text = String::from_utf8_lossy(&self.sent);
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            if letter != '\u{1b}' {
                if let Some(cell) = cells.get_mut(y).and_then(|row| row.get_mut(x)) {
                    *cell = letter;
                }
                x += 1;
                continue;
            }
            let mut command = letters.by_ref().skip(1);
            let mut numbers = String::new();
            let end = command.find(|letter| {
                numbers.push(*letter);
                letter.is_ascii_alphabetic()
            });
            if end == Some('H') {
                let mut places = numbers.trim_end_matches('H').split(';');
                let mut place = || {
                    places
                        .next()
                        .and_then(|text| text.parse().ok())
                        .unwrap_or(1)
                };
                (y, x) = (place() - 1, place() - 1);
            }
        }
        let line = |row: Vec<char>| row.into_iter().collect::<String>().trim_end().to_owned();
        cells.into_iter().map(line).collect()
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
        panic!("it did not end:\n{}", self.screen().join("\n"));
    }
}

/// A test that fails leaves nothing behind.
impl Drop for Tty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
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
