//! Whoever reads what `parti consume` writes.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn parti(folder: &Path, arguments: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_parti"))
        .args(arguments.split(' '))
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts")
}

fn produce(folder: &Path, lines: &[u8]) {
    let mut producer = parti(folder, "produce --source log:log --topic t --partitions 1");
    let mut stdin = producer.stdin.take().expect("piped");
    stdin.write_all(lines).expect("read");
    drop(stdin);
    assert!(producer.wait().expect("ends").success());
}

fn consume(folder: &Path, output: &str) -> Child {
    let flags = "consume --store sqlite:g.db --source log:log --topic t --group g --start earliest";
    parti(folder, &format!("{flags} -o {output}"))
}

#[test]
fn text_is_what_was_produced_byte_by_byte() {
    let folder = tempfile::tempdir().expect("a folder");
    let line = b"a\xff\x00\xc3(\r\n";
    produce(folder.path(), line);
    let mut consumer = consume(folder.path(), "text");
    let mut read = vec![0; line.len()];
    let stdout = consumer.stdout.as_mut().expect("piped");
    stdout.read_exact(&mut read).expect("a line");
    assert_eq!(read, line);
    consumer.kill().expect("runs");
    consumer.wait().expect("ends");
}

#[test]
fn a_worker_whose_reader_went_away_stops_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    produce(folder.path(), b"one\n");
    let mut consumer = consume(folder.path(), "jsonl");
    let stdout = BufReader::new(consumer.stdout.take().expect("piped"));
    let mut lines = stdout.lines().map(|line| line.expect("text"));
    // Nothing more will be written after it: there is no other message.
    assert!(lines.any(|line| line.contains("\"event\":\"message\"")));
    drop(lines);
    let mut told = String::new();
    let mut stderr = consumer.stderr.take().expect("piped");
    stderr.read_to_string(&mut told).expect("text");
    assert!(told.contains("nobody reads stdout any more"), "{told}");
    assert_eq!(consumer.wait().expect("ends").code(), Some(1));
}
