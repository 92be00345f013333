//! The manual pages and completions that `make install` installs.
use std::process::{Command, Output};

fn parda(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_parda")).args(arguments).output().unwrap()
}

#[test]
fn each_command_has_a_page_with_its_options_and_examples() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    assert!(parda(&["man", path]).status.success());
    for (page, says) in [
        ("parda", "parda\\-serve(1)"),
        ("parda-serve", "SIGHUP"),
        ("parda-status", "\\-\\-over"),
        ("parda-exchange-init", "\\-\\-slots"),
    ] {
        let text = std::fs::read_to_string(dir.path().join(format!("{page}.1"))).unwrap();
        assert!(text.contains(".TH ") && text.contains(says), "{page}: {text}");
    }
    let missing = parda(&["man", "/nonexistent"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/nonexistent"), "{missing:?}");
}

#[test]
fn completions_are_a_script_that_knows_the_commands() {
    let script = parda(&["completions", "bash"]).stdout;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("parda");
    std::fs::write(&path, &script).unwrap();
    let ask = "source \"$0\"; COMP_WORDS=(parda st); COMP_CWORD=1; _parda parda st parda; \
               echo ${COMPREPLY[*]}";
    let output = Command::new("bash").arg("-c").arg(ask).arg(&path).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "status steer", "{output:?}");
    for shell in ["zsh", "fish"] {
        assert!(parda(&["completions", shell]).stdout.len() > 1000, "{shell}");
    }
    assert_eq!(parda(&["completions", "tcsh"]).status.code(), Some(2));
}
