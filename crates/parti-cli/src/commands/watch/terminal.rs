//! The terminal: taken over, and given back however the program ends.

use std::io;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use tokio::sync::mpsc;

use super::app::Key;

/// The terminal while it is ours. A panic gives it back before it says anything; everything else
/// gives it back when this is dropped.
pub struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    /// Takes it over.
    pub fn open() -> io::Result<Self> {
        let terminal = ratatui::try_init()?;
        Ok(Self { terminal })
    }

    /// Draws a whole screen; only what differs is sent.
    pub fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw)?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If even that fails, there is no terminal left to tell it on.
        let _ = self.terminal.show_cursor();
        ratatui::restore();
    }
}

/// What the keyboard and the window say.
#[derive(Debug)]
pub enum Typed {
    /// A key.
    Key(Key),
    /// The window has another size.
    Resized,
}

/// Listens to the keyboard, on a thread of its own: it ends with the program.
pub fn typed() -> mpsc::UnboundedReceiver<Typed> {
    let (to, typed) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let typed = match event {
                Event::Key(pressed) => key(pressed).map(Typed::Key),
                Event::Resize(..) => Some(Typed::Resized),
                _ => None,
            };
            if typed.is_some_and(|typed| to.send(typed).is_err()) {
                return;
            }
        }
    });
    typed
}

/// What a pressed key means here.
fn key(pressed: KeyEvent) -> Option<Key> {
    if pressed.kind == KeyEventKind::Release {
        return None;
    }
    let control = pressed.modifiers.contains(KeyModifiers::CONTROL);
    Some(match pressed.code {
        KeyCode::Char('c') if control => Key::Interrupt,
        KeyCode::Char(_) if control || pressed.modifiers.contains(KeyModifiers::ALT) => {
            return None;
        }
        KeyCode::Char(letter) => Key::Char(letter),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Tab | KeyCode::BackTab => Key::Tab,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_mean_what_they_say_and_chords_mean_nothing() {
        let with = |code, modifiers| key(KeyEvent::new(code, modifiers));
        let none = KeyModifiers::NONE;
        assert_eq!(with(KeyCode::Char('q'), none), Some(Key::Char('q')));
        assert_eq!(
            with(KeyCode::Char('Q'), KeyModifiers::SHIFT),
            Some(Key::Char('Q'))
        );
        let control = KeyModifiers::CONTROL;
        assert_eq!(with(KeyCode::Char('c'), control), Some(Key::Interrupt));
        assert_eq!(with(KeyCode::Char('d'), control), None);
        assert_eq!(with(KeyCode::F(1), none), None);
    }
}
