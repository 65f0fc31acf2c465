//! PLAIN (RFC 4616): the password itself, in one message.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};

use super::{OTHER_IDENTITY, Rejection};
use crate::config::Secret;

/// The answer to a wrong password and to an unknown user alike.
const INVALID: &str = "Authentication failed: Invalid username or password";

/// Compared with the password of an unknown user, so that its answer takes as long.
const DUMMY: &str = "";

/// Returns the user that a message proves to be.
pub(super) fn check(token: &[u8], users: &BTreeMap<Arc<str>, Secret>) -> Result<String, Rejection> {
    let text = std::str::from_utf8(token).map_err(|_| Rejection::of_message("the message is not UTF-8"))?;
    let mut parts = text.splitn(4, '\0');
    let (Some(identity), Some(user), Some(password), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(Rejection::of_message("the message does not have three parts"));
    };
    if user.is_empty() {
        return Err(Rejection::told(
            "Authentication failed: username not specified",
            "no user name",
        ));
    }
    if password.is_empty() {
        let told = "Authentication failed: password not specified";
        return Err(Rejection::told(told, "no password").by(user));
    }
    let expected = users.get(user);
    // Hashes have one length, whatever the passwords have.
    let hash = |password: &str| digest(&SHA256, password.as_bytes());
    let [given, stored] = [password, expected.map_or(DUMMY, Secret::reveal)].map(hash);
    let is_right = verify_slices_are_equal(given.as_ref(), stored.as_ref()).is_ok();
    if expected.is_none() {
        return Err(Rejection::told(INVALID, "unknown user").by(user));
    }
    if !is_right {
        return Err(Rejection::told(INVALID, "wrong password").by(user));
    }
    if !identity.is_empty() && identity != user {
        return Err(Rejection::told(OTHER_IDENTITY, "asks to act for another user").by(user));
    }
    Ok(user.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn users() -> BTreeMap<Arc<str>, Secret> {
        [("alice", "wonderland"), ("", "x"), ("mute", "")]
            .map(|(user, password)| (Arc::from(user), Secret::new(password)))
            .into()
    }

    fn refused(token: &[u8]) -> Rejection {
        check(token, &users()).unwrap_err()
    }

    #[test]
    fn the_right_password_proves_the_user() {
        assert_eq!(check(b"\0alice\0wonderland", &users()).unwrap(), "alice");
        assert_eq!(check(b"alice\0alice\0wonderland", &users()).unwrap(), "alice");
    }

    #[test]
    fn an_unknown_user_and_a_wrong_password_look_alike() {
        let told = |token: &[u8]| refused(token).told;
        assert_eq!(told(b"\0alice\0Wonderland"), Some(INVALID));
        for token in [
            &b"\0bob\0wonderland"[..],
            b"\0alice\0wonderlan",
            b"\0alice\0wonderland ",
            b"\0mute\0x",
            b"bob\0bob\0x",
        ] {
            assert_eq!(told(token), told(b"\0alice\0wrong"));
        }
        // The operator is told the difference.
        assert_eq!(refused(b"\0bob\0x").reason, "unknown user");
        assert_eq!(refused(b"\0alice\0x").reason, "wrong password");
    }

    #[test]
    fn a_user_cannot_act_for_another() {
        let rejection = refused(b"bob\0alice\0wonderland");
        assert_eq!(rejection.told, Some(OTHER_IDENTITY));
        // Without the password it is not said.
        assert_eq!(refused(b"bob\0alice\0x").told, Some(INVALID));
    }

    #[test]
    fn malformed_messages_are_refused() {
        for token in [
            &b""[..],
            b"\0",
            b"alice",
            b"\0alice",
            b"alice\0wonderland",
            b"\0alice\0wonderland\0",
            b"\0\0alice\0wonderland",
            b"\0alice\0\xff",
            &[0; 4_096],
        ] {
            let rejection = refused(token);
            assert_eq!((rejection.told, rejection.user), (None, None), "{token:?}");
        }
        assert!(refused(b"\0\0wonderland").told.unwrap().contains("username"));
        assert!(refused(b"\0alice\0").told.unwrap().contains("password"));
        assert!(refused(b"\0mute\0").told.unwrap().contains("password"));
    }
}
