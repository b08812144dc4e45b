//! What refusals say to whoever reads them.

use fencehold_core::lease::How;
use fencehold_core::{Owner, Reason, Refusal, Token, Violation};

fn lost(how: Option<How>, by: Option<&str>, reason: Option<&str>) -> Refusal {
    let by = by.map(|by| Owner::new(by).expect("a good name"));
    let reason = reason.map(|reason| Reason::new(reason).expect("a good reason"));
    Refusal::Lost { token: Token::new(7), how, by, reason, current: Token::new(9) }
}

#[test]
fn a_refusal_says_how_the_hold_ended_and_through_whom() {
    let released = Refusal::Ended { token: Some(Token::new(7)), how: Some(How::Released) };
    assert_eq!(released.to_string(), "this hold has ended: token 7 was released");
    let forgotten = Refusal::Ended { token: None, how: None };
    assert_eq!(
        forgotten.to_string(),
        "this hold has ended, or may have: the key's history no longer reaches back that far"
    );
    for (refusal, words) in [
        (lost(None, None, None), ""),
        (lost(Some(How::Expired), None, None), ": it expired: it was not renewed in time"),
        (lost(Some(How::AgedOut), None, None), ": it was held for its whole max age"),
        (
            lost(Some(How::Yielded), Some("nightly"), None),
            ": it was asked to yield by nightly, and its time was up",
        ),
        (
            lost(Some(How::Revoked), Some("ops"), Some("it was stuck")),
            ": it was revoked by ops (it was stuck)",
        ),
        (lost(Some(How::Released), None, None), ": it was released"),
    ] {
        let all = format!("the hold under token 7 is over{words}; the key's current token is 9");
        assert_eq!(refusal.to_string(), all);
    }
}

#[test]
fn a_broken_invariant_is_named() {
    assert_eq!(Violation::TwoHolders.to_string(), "invariant broken: TwoHolders");
}
