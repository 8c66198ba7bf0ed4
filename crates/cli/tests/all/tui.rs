//! The dashboard: in a pseudo-terminal created by `script` of util-linux, and without a terminal.

use crate::common::Scene;

#[test]
fn without_a_terminal_there_are_lines() {
    let scene = Scene::new();
    let out = scene.train("run", "--model mlp --epochs 2 --tui");
    assert!(out.contains("epoch 2/2") && !out.contains('\u{1b}'), "{out}");
    scene.fails("profile train bars --data data --tui", &["--tui shows a run"]);
}

#[cfg(target_os = "linux")]
mod in_a_terminal {
    use std::io::{Read, Write};
    use std::process::{Child, Command, Stdio};
    use std::sync::{Arc, Mutex};
    use std::thread::JoinHandle;
    use std::time::{Duration, Instant};

    use crate::common::Scene;

    /// How long anything may take on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(300);
    const ENTER: &str = "\u{1b}[?1049h";
    const LEAVE: &str = "\u{1b}[?1049l";

    /// A command in its own terminal.
    struct Session {
        child: Child,
        /// All that was written to the terminal so far.
        written: Arc<Mutex<Vec<u8>>>,
        reader: JoinHandle<()>,
    }

    impl Session {
        /// Saves the terminal's settings before and after the command in two files.
        fn new(scene: &Scene, line: &str, size: [u16; 2]) -> Self {
            let [cols, rows] = size;
            let program = env!("CARGO_BIN_EXE_polygrad");
            let shell = format!(
                "stty cols {cols} rows {rows}; stty -g > before; {program} {line}; echo status $?; stty -g > after"
            );
            let mut child = Command::new("script")
                .args(["--quiet", "--flush", "--command", &shell, "/dev/null"])
                .current_dir(scene.path(""))
                .env("SHELL", "/bin/sh")
                .env("TERM", "xterm-256color")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut stdout = child.stdout.take().unwrap();
            let written = Arc::new(Mutex::new(Vec::new()));
            let all = Arc::clone(&written);
            let reader = std::thread::spawn(move || {
                let mut chunk = [0; 4096];
                while let Ok(count @ 1..) = stdout.read(&mut chunk) {
                    all.lock().unwrap().extend(&chunk[..count]);
                }
            });
            Self { child, written, reader }
        }

        fn output(&self) -> String {
            String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
        }

        /// Waits for a curve, then presses a key.
        fn press(&mut self, key: &[u8]) {
            let started = Instant::now();
            while !self.output().contains(is_braille) {
                assert!(started.elapsed() < PATIENCE, "{:?}", self.output());
                std::thread::sleep(Duration::from_millis(5));
            }
            // The first half of a key's escape sequence only, since bytes that follow too soon may be taken for the
            // rest.
            let send = |session: &mut Self, bytes: &[u8]| session.child.stdin.as_mut().unwrap().write_all(bytes);
            send(self, b"\x1b[").unwrap();
            while self.child.try_wait().unwrap().is_none() && !self.output().contains(LEAVE) {
                assert!(started.elapsed() < PATIENCE, "{:?}", self.output());
                std::thread::sleep(Duration::from_secs(1));
                // It may have ended meanwhile.
                let _ = send(self, key);
            }
        }

        fn end(mut self, scene: &Scene) -> String {
            let started = Instant::now();
            while self.child.try_wait().unwrap().is_none() || !self.reader.is_finished() {
                if started.elapsed() > PATIENCE {
                    self.child.kill().unwrap();
                    panic!("it does not end: {:?}", self.output());
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let output = self.output();
            assert_eq!(scene.read("before"), scene.read("after"), "{output}");
            output
        }
    }

    /// The characters that curves are drawn with.
    fn is_braille(c: char) -> bool {
        ('\u{2801}'..='\u{28ff}').contains(&c)
    }

    /// The content of the dashboard's screen, and the output after it.
    fn parts(output: &str) -> (&str, &str) {
        let (before, after) = output.rsplit_once(LEAVE).unwrap();
        (before.split_once(ENTER).unwrap().1, after)
    }

    #[test]
    fn a_key_stops_a_run_that_can_go_on() {
        let scene = Scene::new();
        let mut rows = "y,x\n".to_owned();
        (0..9000).for_each(|i| rows += &format!("{},{i}\n", i * i % 17));
        scene.write("t.csv", rows.as_bytes());
        let images = "train bars --data data --model mlp --threads 1 --batch-size 1 --epochs 100";
        let table = "train table t.csv --target y --threads 1 --batch-size 1 --epochs 10";
        for (i, (line, key)) in [(images, &b"q"[..]), (table, b"\x03")].into_iter().enumerate() {
            let (stopped, whole) = (format!("stopped-{i}"), format!("whole-{i}"));
            let mut session = Session::new(&scene, &format!("{line} --out {stopped} --tui"), [100, 30]);
            session.press(key);
            let output = session.end(&scene);
            let (screen, after) = parts(&output);
            for word in ["loss", "train", "examples/s", "evaluation", "memory", "checkpoint"] {
                assert!(screen.contains(word), "{output:?}\nshould contain {word}");
            }
            assert!(
                after.contains(&format!("polygrad train --resume {stopped}")),
                "{output:?}"
            );
            assert!(after.contains("status 130"), "{output:?}");
            scene.ok(&format!("train --resume {stopped}"));
            scene.ok(&format!("{line} --out {whole}"));
            scene.same(&stopped, &whole);
        }
    }

    #[test]
    fn the_terminal_is_given_back_after_an_error_and_at_the_end() {
        let scene = Scene::new();
        let line = "train bars --data data --model mlp --threads 1 --tui";
        let failed = Session::new(&scene, &format!("{line} --lr 1e30 --optimizer sgd --out a"), [20, 5]);
        let output = failed.end(&scene);
        let (_, after) = parts(&output);
        assert!(
            after.contains("error: ") && after.contains("start a new run with an --lr below"),
            "{output:?}"
        );
        assert!(after.contains("status 1"), "{output:?}");
        let done = Session::new(&scene, &format!("{line} --epochs 2 --out b"), [1, 1]).end(&scene);
        let (_, after) = parts(&done);
        assert!(
            after.contains("epoch 2/2") && after.contains("test accuracy"),
            "{done:?}"
        );
        assert!(after.contains("status 0"), "{done:?}");
        // There is nothing to show.
        let complete = Session::new(&scene, "train --resume b --tui", [80, 24]).end(&scene);
        assert!(
            complete.contains("this run is complete") && !complete.contains(ENTER),
            "{complete:?}"
        );
    }
}
