//! What a screen shows after what programs write, well or badly.

use super::*;
use proptest::prelude::*;

fn screen(rows: u32, cols: u32, bytes: &str) -> Screen {
    let mut screen = Screen::new(Size::new(rows, cols).unwrap());
    screen.feed(bytes.as_bytes());
    screen
}

fn texts(page: &Page) -> Vec<&str> {
    page.rows.iter().map(|row| row.text.as_str()).collect()
}

fn numbers(page: &Page) -> Vec<u64> {
    page.rows.iter().map(|row| row.number).collect()
}

fn all(screen: &Screen) -> Page {
    screen.tail(usize::MAX, None, Style::Plain)
}

#[test]
fn sizes_have_bounds() {
    let rows = [(0, 0), (0, 1), (1, 0), (65536, 1), (65537, 1), (1, 1001), (u32::MAX, u32::MAX)];
    for (rows, cols) in rows {
        assert_eq!(Size::new(rows, cols), Err(BadSize { rows, cols }));
    }
    for (rows, cols) in [(1, 1), (1000, 1000), (24, 80)] {
        let size = Size::new(rows, cols).unwrap();
        assert_eq!((u32::from(size.rows()), u32::from(size.cols())), (rows, cols));
    }
    assert_eq!(Ok(Size::default()), Size::new(40, 120));
}

#[test]
fn rows_are_shown_as_a_person_would_see_them() {
    let rows: [(&str, &[&str]); 14] = [
        ("", &[]),
        ("\r\n\r\n", &[]),
        ("$ ls\r\n\r\na  b  \r\n$ ", &["$ ls", "", "a  b", "$"]),
        ("50%\r100%\x08\x08\x08\x1b[K", &["1"]),
        ("0123456789abcdef", &["0123456789abcdef"]),
        ("0123456789\r\nabc", &["0123456789", "abc"]),
        ("1\r\n2\r\n3\r\n4\r\n5\r\n6", &["1", "2", "3", "4", "5", "6"]),
        ("\x1b[31mred\x1b[m \x1b]8;;http://x\x07link\x1b]8;;\x07", &["red link"]),
        ("a\tb\x07\x7f\u{85}", &["a       b"]),
        ("a\x1b[3;3Hb", &["a", "", "  b"]),
        ("e\u{301}日本❤\u{fe0f}!", &["e\u{301}日本❤\u{fe0f}!"]),
        ("\x1b[?25l\x1b[2J\x1b[Hgone\x1bcnew", &["new"]),
        ("a\x1bP1$q never shown \x1b\\b\x1b_nor this\x1b\\c", &["abc"]),
        ("1\r\n2\r\n3\x1b[Htop\x1bMmore\x1b[999999999;99999999H.", &["   more", "top", "2", "3        ."]),
    ];
    for (bytes, expected) in rows {
        let screen = screen(4, 10, bytes);
        assert_eq!(texts(&all(&screen)), expected, "{bytes:?}");
    }
}

#[test]
fn colours_are_kept_on_demand_and_nothing_else() {
    let screen = screen(2, 20, "\x1b[1;31mred\r\nstill\x1b[m plain\r\n\x1b[44m  \x1b[m\r\n");
    let rows = screen.tail(9, None, Style::Colours);
    assert_eq!(texts(&rows), ["\x1b[31;1mred\x1b[m", "\x1b[31;1mstill\x1b[m plain"]);
    assert_eq!(texts(&all(&screen)), ["red", "still plain"]);
}

#[test]
fn pages_lead_back_to_the_first_row_that_is_kept() {
    let mut screen = screen(4, 20, "");
    (0..10_100).for_each(|n| drop(screen.feed(format!("line {n}\r\n").as_bytes())));
    let (mut before, mut seen) = (None, Vec::new());
    loop {
        let page = screen.tail(300, before, Style::Plain);
        assert!(page.rows.iter().all(|row| row.text == format!("line {}", row.number)), "{page:?}");
        seen.splice(0..0, numbers(&page));
        assert_eq!(page.dropped, page.next.is_none());
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(seen, (97..10_100).collect::<Vec<_>>());
    let gone = screen.tail(5, Some(50), Style::Plain);
    assert_eq!(gone, Page { rows: Vec::new(), next: None, dropped: true });
    let whole = self::screen(4, 20, "a\r\nb").tail(1, Some(1), Style::Plain);
    assert_eq!((texts(&whole), whole.next, whole.dropped), (vec!["a"], None, false));
}

#[test]
fn a_search_finds_what_wraps_in_any_case_and_counts() {
    let mut screen = screen(3, 10, "");
    screen.feed("one\r\nan ERROR that wraps\r\ntwo\r\n\x1b[31mEr\x1b[32mror\x1b[m\r\nÜber\r\n".as_bytes());
    let rows: [(&str, usize, &[u64], usize); 7] = [
        ("error", 9, &[1, 3], 2),
        ("error", 1, &[3], 2),
        ("error", 0, &[], 2),
        ("THAT WRAPS", 9, &[1], 1),
        ("über", 9, &[4], 1),
        ("none", 9, &[], 0),
        ("31m", 9, &[], 0),
    ];
    for (pattern, most, expected, total) in rows {
        let found = screen.search(pattern, most);
        let numbers: Vec<u64> = found.rows.iter().map(|row| row.number).collect();
        assert_eq!((numbers.as_slice(), found.total), (expected, total), "{pattern}");
    }
}

#[test]
fn the_alternate_screen_stands_below_the_history_and_leaves_no_trace() {
    let mut screen = screen(3, 10, "1\r\n2\r\n3\r\n4\r\n5");
    let before = all(&screen);
    screen.feed(b"\x1b[?1049h\x1b[Hvim\r\n~\r\n~\r\n~\r\n");
    assert!(screen.alternate_screen());
    assert_eq!(texts(&all(&screen)), ["1", "2", "~", "~"]);
    assert_eq!(numbers(&all(&screen)), [0, 1, 2, 3]);
    assert_eq!(texts(&screen.tail(1, Some(2), Style::Plain)), ["2"]);
    screen.feed(b"\x1b[?1049l");
    assert_eq!(all(&screen), before);
}

#[test]
fn a_new_run_goes_on_below_with_nothing_of_the_last_ones_modes() {
    let mut screen =
        screen(4, 10, "old 1\r\nold 2\r\n\x1b[?2004h\x1b]2;title\x07\x1b]7501;state=blocked\x07\x1b[?1049hvim\x1b[31m");
    assert!(screen.bracketed_paste() && screen.alternate_screen());
    assert_eq!((screen.title(), screen.program_status()), (Some("title"), Some(ProgramState::Blocked)));
    screen.feed(b"\x1b]0;unfinished\xe2\x89");
    screen.begin_run();
    assert!(!screen.bracketed_paste() && !screen.alternate_screen());
    assert_eq!((screen.title(), screen.program_status()), (None, None));
    assert_eq!(screen.feed(b"new\x1b[6n"), b"\x1b[1;4R");
    let shown = screen.tail(9, None, Style::Colours);
    assert_eq!((texts(&shown), numbers(&shown)), (vec!["old 1", "old 2", "new"], vec![0, 1, 2]));
    // A line that wraps off the screen ends with its run.
    screen.feed(&[b'x'; 100]);
    screen.begin_run();
    screen.feed(b"y");
    let long = format!("new{}", "x".repeat(100));
    assert_eq!(texts(&all(&screen)), ["old 1", "old 2", &long, "y"]);
}

#[test]
fn what_is_cleared_is_gone_and_numbers_go_on() {
    for alternate in [false, true] {
        let mut screen = screen(3, 10, "1\r\n2\r\n3\r\n4\r\n$ ");
        if alternate {
            screen.feed(b"\x1b[?1049h\x1b[2;1Htop");
        }
        let next = all(&screen).rows.last().unwrap().number + 1;
        screen.clear();
        assert_eq!(all(&screen), Page { rows: Vec::new(), next: None, dropped: true });
        assert_eq!(screen.search("", 9).rows.iter().filter(|row| !row.text.is_empty()).count(), 0);
        assert_eq!(screen.raw_tail(9, None, usize::MAX).text, "");
        screen.feed(b"x");
        let shown = all(&screen);
        assert!(shown.rows.iter().all(|row| row.number >= next), "{shown:?} from {next}");
        assert_eq!(texts(&shown), if alternate { vec!["", "   x"] } else { vec!["  x"] });
        screen.feed(b"\x1b[?1049l");
        assert!(alternate || texts(&all(&screen)) == ["  x"]);
        assert_eq!(screen.search("2", 9).total + screen.search("$", 9).total, 0);
    }
}

#[test]
fn no_line_is_lost_by_a_resize() {
    let text = "a\r\nsome longer text that wraps here\r\nb\r\nc\r\n\r\nlast";
    let sizes = [(3, 20), (40, 20), (40, 5), (6, 300), (1, 1), (24, 80)];
    for alternate in [false, true] {
        for from in sizes {
            for to in sizes {
                let mut screen = screen(from.0, from.1, text);
                if alternate {
                    screen.feed(b"\x1b[?1049h\x1b[2;2Hvim\x1b]0;ti");
                }
                screen.resize(Size::new(to.0, to.1).unwrap());
                screen.feed(if alternate { b"tle\x07\x1b[?1049l" } else { b"" });
                // A screen of one row does not tell what wraps: its pieces are lines, without the blanks at their ends.
                let shown = texts(&all(&screen)).concat().replace(' ', "");
                assert_eq!(shown, text.replace(char::is_whitespace, ""), "{from:?} {to:?} {alternate}");
                assert_eq!(screen.size(), Size::new(to.0, to.1).unwrap());
            }
        }
    }
    // Text below the cursor, and no blank rows on top of a screen that grows.
    let mut screen = screen(6, 10, "0\r\n1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7\x1b[2H");
    screen.resize(Size::new(2, 10).unwrap());
    screen.resize(Size::new(30, 10).unwrap());
    assert_eq!(texts(&all(&screen)).concat(), "01234567");
}

#[test]
fn what_never_ends_takes_no_more_room() {
    let mut screen = screen(4, 10, "before\r\n");
    let rows: [(&[u8], &[u8]); 5] = [
        (b"\x1b]0;", b"y\n"),
        (b"\x1b[", b"1;"),
        (b"\x1bP", b"y\n"),
        (b"x", "\u{301}".as_bytes()),
        (b"", b"\x1b[65535S\x1b[65535T\x1b[65535L\x1b[9;2r\x1b[0;0r"),
    ];
    for (start, endless) in rows {
        screen.feed(start);
        (0..300).for_each(|_| drop(screen.feed(&endless.repeat(1000))));
        screen.feed(b"m\x1b\\");
    }
    let held: usize = screen.tail(usize::MAX, None, Style::Colours).rows.iter().map(|row| row.text.len()).sum();
    assert!(held < 300_000, "{held}");
    assert!(screen.title().is_some_and(|title| title.len() <= 256));
}

/// What programs write, and what hostile ones do.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-z ]{0,12}".prop_map(String::into_bytes),
        "[日本e\u{301}❤\u{fe0f}\u{17d8}👨\u{200d}👩é]{1,4}".prop_map(String::into_bytes),
        "\x1b\\[[0-9]{0,2};?[0-9]{0,2}[@A-HJ-MPSTX`dfrm]".prop_map(String::into_bytes),
        "\x1b\\[\\?(1049|47|6|25|2004)[hl]".prop_map(String::into_bytes),
        "[\r\n\t\x08\x18]|\r\n|\x1b[M78c=>]|\x1b\\]0;t|\x07|\x1b\\\\|\x1bP|\x1b\\[6n|\x1b\\[65535[ABCDLMPSTXb]"
            .prop_map(String::into_bytes),
        ("(y| ab  |)\r\n", 1_usize..60).prop_map(|(line, times)| line.repeat(times).into_bytes()),
        prop::collection::vec(any::<u8>(), 0..4),
    ]
}

proptest! {
    #[test]
    fn any_bytes_in_any_pieces_give_the_same_clean_rows(
        rows in 1_u32..7, cols in 1_u32..9,
        steps in prop::collection::vec((prop::collection::vec(piece(), 1..6), 0..8, 1_u32..7, 1_u32..9), 1..12),
    ) {
        let mut whole = screen(rows, cols, "");
        let mut pieces = screen(rows, cols, "");
        for (bytes, then, rows, cols) in steps {
            let bytes = bytes.concat();
            let answers = whole.feed(&bytes);
            let same: Vec<u8> = bytes.chunks(1).flat_map(|byte| pieces.feed(byte)).collect();
            prop_assert!(answers == same || answers.len() > 4000, "{answers:?} {same:?}");
            for screen in [&mut whole, &mut pieces] {
                match then {
                    0 => screen.resize(Size::new(rows, cols).unwrap()),
                    1 => screen.begin_run(),
                    2 => screen.clear(),
                    _ => {}
                }
            }
            let shown = whole.tail(usize::MAX, None, Style::Colours);
            prop_assert_eq!(&shown, &pieces.tail(usize::MAX, None, Style::Colours));
            prop_assert!(shown.rows.windows(2).all(|pair| pair[0].number + 1 == pair[1].number));
            let plain = all(&whole);
            prop_assert!(plain.rows.iter().all(|row| !row.text.contains(char::is_control) && row.text.trim_end() == row.text));
            let search = whole.search("", usize::MAX);
            prop_assert!(search.total >= plain.rows.len() && search.rows.starts_with(&plain.rows));
        }
    }
}
