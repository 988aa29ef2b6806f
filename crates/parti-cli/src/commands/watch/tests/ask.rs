//! What is asked of the group: which keys lead there, and what ends it.

use parti::core::record::Request;
use parti::operate::{self, CarriedOut};

use super::super::app::Mode;
use super::super::ask::Asking;
use super::*;

fn worker(id: &str) -> WorkerId {
    WorkerId::new(id)
}

fn partition(id: &str) -> PartitionId {
    PartitionId::new(id)
}

/// Presses keys; `\n` is Enter, `\t` Tab, `\u{1b}` Esc. The last one may have an effect.
#[track_caller]
fn types(app: &mut App, keys: &str) -> Option<Effect> {
    let mut effect = None;
    for letter in keys.chars() {
        assert_eq!(effect, None, "before {letter:?}");
        let key = match letter {
            '\n' => Key::Enter,
            '\t' => Key::Tab,
            '\u{1b}' => Key::Escape,
            letter => Key::Char(letter),
        };
        effect = app.update(NOW, Input::Key(key));
    }
    effect
}

fn asks(request: Request, why: &str) -> Option<Effect> {
    Some(Effect::Request(request, why.to_owned()))
}

fn done(app: &mut App, request: Request, took_ms: u64) {
    let carried_out = CarriedOut {
        request: request.clone(),
        took_ms,
    };
    app.update(NOW, Input::Answer(request, Ok(carried_out)));
}

fn drain(id: &str) -> Request {
    Request::Drain { worker: worker(id) }
}

#[test]
fn a_worker_is_drained_for_a_reason_once_that_is_confirmed() {
    let mut app = app(group(3, 12), None);
    app.update(NOW, Input::Key(Key::Down));
    shows(&lines(&mut app, 80, 24), "d drain  e evict");
    assert_eq!(types(&mut app, "d"), None);
    shows(
        &lines(&mut app, 80, 24),
        "drain worker-1, why: _   Enter goes on",
    );
    assert_eq!(types(&mut app, "new disq"), None);
    app.update(NOW, Input::Key(Key::Backspace));
    assert_eq!(types(&mut app, "k\nx"), None, "other keys mean nothing");
    shows(&lines(&mut app, 80, 24), "drain worker-1? y/n   (new disk)");
    assert_eq!(types(&mut app, "y"), asks(drain("worker-1"), "new disk"));
    // The view stays live.
    assert_eq!(app.mode, Mode::Look);
    app.update(NOW + 3_000, Input::Tick);
    shows(&lines(&mut app, 80, 24), "drain worker-1 under way for 3s");
    assert_eq!(types(&mut app, "d"), None);
    shows(
        &lines(&mut app, 80, 24),
        "drain worker-1: already under way",
    );
    assert_eq!(app.mode, Mode::Look);
    done(&mut app, drain("worker-1"), 240);
    let shown = lines(&mut app, 80, 24);
    shows(&shown, " drain worker-1: done after 240 ms");
    shows(
        &shown,
        "22:13:20  you       drain worker-1: done after 240 ms",
    );
    types(&mut app, "s");
    shows(&lines(&mut app, 80, 24), "q quit  ? help");
    // Now the same key ends it.
    let mut drained = group(3, 12);
    drained.workers[1].drained = true;
    app.update(NOW, Input::Sight(Sight::Group(Box::new(drained))));
    shows(&lines(&mut app, 80, 24), "d undrain");
    let undrain = Request::Undrain {
        worker: worker("worker-1"),
    };
    assert_eq!(types(&mut app, "d\ny"), asks(undrain, ""));
}

#[test]
fn an_eviction_is_confirmed_twice_and_names_the_life_that_was_seen() {
    let mut app = app(group(2, 4), None);
    assert_eq!(types(&mut app, "ehangs\ny"), None);
    shows(
        &lines(&mut app, 80, 24),
        "really evict worker-0? d is the gentle way. y/n",
    );
    // Another life under the same id is another matter.
    let mut later = group(2, 4);
    later.workers[0].incarnation = Incarnation(9);
    app.update(NOW, Input::Sight(Sight::Group(Box::new(later))));
    let evict = Request::Evict {
        worker: worker("worker-0"),
        incarnation: Incarnation(1),
        stay_away: false,
    };
    assert_eq!(types(&mut app, "y"), asks(evict, "hangs"));
    assert_eq!(types(&mut app, "e\nyn"), None);
    assert_eq!(app.mode, Mode::Look);
    shows(&lines(&mut app, 80, 24), "nothing was asked for");
}

#[test]
fn a_partition_is_paused_and_resumed() {
    let mut app = app(busy(3, 12), None);
    assert_eq!(types(&mut app, "\t"), None);
    app.update(NOW, Input::Key(Key::Right));
    shows(&lines(&mut app, 80, 24), "p pause  m move  b rebalance");
    let pause = Request::Pause {
        partition: partition("1"),
    };
    assert_eq!(
        types(&mut app, "pwrong prices\ny"),
        asks(pause, "wrong prices")
    );
    for _ in 1..7 {
        app.update(NOW, Input::Key(Key::Right));
    }
    let resume = Request::Resume {
        partition: partition("7"),
    };
    assert_eq!(types(&mut app, "p\ny"), asks(resume, ""));
    shows(
        &lines(&mut app, 80, 24),
        "pause partition 1 under way for 0s, and 1 more",
    );
}

#[test]
fn a_partition_is_moved_to_a_worker_by_its_letter_or_by_arrows() {
    let mut seen = group(5, 12);
    seen.workers[2].drained = true;
    seen.workers[4].status = SessionStatus::Leaving;
    let mut app = app(seen, None);
    let to = |id| Request::Move {
        partition: partition("0"),
        worker: worker(id),
    };
    assert_eq!(types(&mut app, "\tm"), None);
    let shown = lines(&mut app, 80, 24);
    shows(
        &shown,
        "move partition 0 to B worker-1   a letter, or arrows and Enter",
    );
    shows(&shown, ">B  worker-1");
    // Neither its owner, nor who is drained, nor who leaves, nor nobody.
    assert_eq!(types(&mut app, "ACEx?"), None);
    assert!(matches!(app.mode, Mode::Ask(Asking::Where { .. })));
    assert_eq!(types(&mut app, "Dcache\ny"), asks(to("worker-3"), "cache"));
    // By arrows: they end at both ends.
    types(&mut app, "m");
    for key in [Key::Up, Key::Right, Key::Down] {
        app.update(NOW, Input::Key(key));
    }
    shows(&lines(&mut app, 80, 24), ">D  worker-3");
    app.update(NOW, Input::Key(Key::Left));
    assert_eq!(types(&mut app, "\n\ny"), asks(to("worker-1"), ""));
    // There is nobody else.
    let mut alone = super::app(group(1, 4), None);
    assert_eq!(types(&mut alone, "\tm"), None);
    assert_eq!(alone.mode, Mode::Look);
    shows(
        &lines(&mut alone, 80, 24),
        "there is no other worker that could serve it",
    );
}

#[test]
fn a_target_that_goes_while_it_is_chosen_does_not_become_another() {
    let mut app = app(group(3, 6), None);
    types(&mut app, "\tm");
    app.update(NOW, Input::Key(Key::Down));
    let mut without = group(3, 6);
    without.workers.truncate(2);
    app.update(NOW, Input::Sight(Sight::Group(Box::new(without))));
    let there = Request::Move {
        partition: partition("0"),
        worker: worker("worker-2"),
    };
    assert_eq!(
        types(&mut app, "\n\ny"),
        asks(there, ""),
        "the group refuses it"
    );
}

#[test]
fn a_partition_is_unpinned_if_it_is_pinned() {
    let mut app = app(group(2, 4), None);
    assert_eq!(types(&mut app, "\tu"), None);
    shows(&lines(&mut app, 80, 24), "it is pinned to no worker");
    let mut pinned = group(2, 4);
    pinned.partitions[0].pinned_to = Some(worker("worker-0"));
    app.update(NOW, Input::Sight(Sight::Group(Box::new(pinned))));
    types(&mut app, "s");
    shows(&lines(&mut app, 80, 24), "u unpin");
    let unpin = Request::Unpin {
        partition: partition("0"),
    };
    assert_eq!(types(&mut app, "u\ny"), asks(unpin, ""));
}

#[test]
fn a_rebalance_is_asked_for_in_any_pane() {
    for tabs in ["", "\t", "\t\t"] {
        let mut app = app(group(2, 4), None);
        let keys = format!("{tabs}bafter a repair\ny");
        assert_eq!(
            types(&mut app, &keys),
            asks(Request::Rebalance, "after a repair")
        );
    }
}

#[test]
fn escape_ends_it_at_every_step() {
    for keys in [
        "d", "dwhy", "dwhy\n", "e\ny", "b", "\tm", "\tmB", "\tmB\n", "\tp\n",
    ] {
        let mut app = app(group(2, 4), None);
        assert_eq!(types(&mut app, keys), None);
        assert!(matches!(app.mode, Mode::Ask(_)), "{keys:?}");
        assert_eq!(types(&mut app, "\u{1b}y\n"), None, "{keys:?}");
        assert_eq!((&app.mode, app.asked.len()), (&Mode::Look, 0), "{keys:?}");
    }
    let mut app = app(group(2, 4), None);
    types(&mut app, "d\u{1b}");
    shows(&lines(&mut app, 80, 24), "nothing was asked for");
    types(&mut app, "dhalf");
    let quit = app.update(NOW, Input::Key(Key::Interrupt));
    assert_eq!(quit, Some(Effect::Quit), "Ctrl-C ends everything");
}

#[test]
fn nothing_is_asked_of_what_is_not_chosen() {
    for (tabs, keys, says) in [
        ("", "pmu", "that is for a partition"),
        ("\t", "de", "that is for a worker"),
        ("\t\t", "depmu", "that is for a "),
    ] {
        for key in keys.chars() {
            let mut app = app(group(2, 4), None);
            assert_eq!(types(&mut app, &format!("{tabs}{key}")), None);
            assert_eq!(app.mode, Mode::Look);
            shows(&lines(&mut app, 80, 24), says);
        }
    }
    let mut nobody = group(2, 4);
    nobody.workers.clear();
    nobody.partitions.clear();
    let mut app = app(nobody, None);
    assert_eq!(types(&mut app, "d"), None);
    shows(&lines(&mut app, 80, 24), " no worker is chosen");
    assert_eq!(types(&mut app, "\tp"), None);
    shows(&lines(&mut app, 80, 24), " no partition is chosen");
    assert_eq!(app.mode, Mode::Look);
}

#[test]
fn what_is_refused_or_stays_open_is_said() {
    let mut app = app(group(2, 4), None);
    let refused = "cannot drain worker-0: nobody else is there to serve what worker-0 has";
    for (error, foot, event) in [
        (
            operate::Error::Refused(refused.into()),
            " has",
            "you       refused: cannot drain worker-0: nobody else",
        ),
        (
            operate::Error::Unfinished("it is not carried out after 30s, and stays".into()),
            " it is not carried out after 30s, and stays",
            "you       it is not carried out after 30s, and stays",
        ),
        (
            operate::Error::Store(Error::unavailable("no answer")),
            " drain worker-0: ",
            "you       drain worker-0: ",
        ),
    ] {
        assert_eq!(types(&mut app, "d\ny"), asks(drain("worker-0"), ""));
        app.update(NOW, Input::Answer(drain("worker-0"), Err(error)));
        assert_eq!(app.asked, []);
        let shown = lines(&mut app, 80, 24);
        assert!(shown[23].starts_with(foot), "{foot:?}: {:?}", shown[23]);
        shows(&shown, event);
        shows(&shown, "live      1.2s");
        if foot == " has" {
            // Too long for one line.
            let both = format!("{}{}", shown[22], shown[23]);
            assert_eq!(both, format!(" refused: {refused}"));
        }
    }
}

#[test]
fn an_answer_interrupts_nobody_who_types() {
    let mut app = app(group(2, 4), None);
    types(&mut app, "d\ny");
    app.update(NOW, Input::Key(Key::Down));
    types(&mut app, "eha");
    done(&mut app, drain("worker-0"), 80);
    assert_eq!(types(&mut app, "ngs"), None);
    shows(&lines(&mut app, 80, 24), "evict worker-1, why: hangs_");
}

/// What can be typed is what the group takes: 500 bytes of one plain line.
#[test]
fn a_reason_has_an_end() {
    for (text, times, bytes) in [("long ", 120, 499), ("🦀", 200, 500), ("a\u{2060}", 9, 9)] {
        let mut app = app(group(2, 4), None);
        types(&mut app, "b");
        assert_eq!(types(&mut app, &text.repeat(times)), None);
        match types(&mut app, "\ny") {
            Some(Effect::Request(_, why)) => {
                assert_eq!(why.len(), bytes, "{why}");
                let by = "alice".to_owned();
                assert_eq!(operate::Reason { by, why }.check(), Ok(()));
            }
            other => panic!("no request: {other:?}"),
        }
    }
    let mut app = app(group(2, 4), None);
    types(&mut app, "b");
    types(&mut app, &"long ".repeat(100));
    shows(&lines(&mut app, 80, 24), "long long _");
}

#[test]
fn the_view_ends_before_an_answer_only_if_that_is_meant() {
    let mut app = app(group(2, 4), None);
    types(&mut app, "d\ny");
    assert_eq!(types(&mut app, "q"), None);
    let shown = lines(&mut app, 80, 24);
    shows(
        &shown,
        "end the view without the outcome of: drain worker-0 under way for 0s? y/n",
    );
    assert_eq!(types(&mut app, "nq"), None);
    assert_eq!(types(&mut app, "y"), Some(Effect::Quit));
    done(&mut app, drain("worker-0"), 80);
    assert_eq!(types(&mut app, "q"), Some(Effect::Quit));
}
