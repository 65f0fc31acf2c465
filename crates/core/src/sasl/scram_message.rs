//! The messages of SCRAM (RFC 5802, section 7), as far as a client sends them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

/// The longest message that is read. A name and a nonce have some dozens of bytes.
const MESSAGE_BYTES_MAX: usize = 4_096;

/// Attributes that RFC 5802 defines: none of them is an extension.
const DEFINED: &str = "aceimnprsv";

/// `n,,n=<user>,r=<nonce>`
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientFirst<'a> {
    /// With its last comma, as `client-final` has to repeat it.
    pub gs2_header: &'a str,
    /// The user that the client wants to act for; `None`: for itself.
    pub identity: Option<String>,
    /// Everything behind the header.
    pub bare: &'a str,
    pub user: String,
    pub nonce: &'a str,
}

impl<'a> ClientFirst<'a> {
    /// - Errors: what is wrong, for the log.
    pub fn parse(message: &'a [u8]) -> Result<ClientFirst<'a>, &'static str> {
        let text = text(message)?;
        let mut fields = text.splitn(3, ',');
        let (Some(binding), Some(identity), Some(bare)) = (fields.next(), fields.next(), fields.next())
        else {
            return Err("client-first has no GS2 header");
        };
        match binding {
            "n" | "y" => {}
            _ if binding.starts_with("p=") => return Err("channel binding is not offered"),
            _ => return Err("client-first has no GS2 header"),
        }
        let identity = match identity {
            "" => None,
            _ => Some(name(
                identity
                    .strip_prefix("a=")
                    .ok_or("client-first has no GS2 header")?,
            )?),
        };
        if bare.starts_with("m=") {
            return Err("a mandatory extension is not known");
        }
        let mut attributes = bare.split(',');
        let user = attribute(attributes.next(), "n=")?;
        let nonce = attribute(attributes.next(), "r=")?;
        if nonce.is_empty() || !nonce.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("the nonce is empty or not printable");
        }
        check_extensions(attributes)?;
        Ok(ClientFirst {
            gs2_header: &text[..text.len() - bare.len()],
            identity,
            bare,
            user: name(user)?,
            nonce,
        })
    }
}

/// `c=<header>,r=<nonce>,p=<proof>`
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClientFinal<'a> {
    /// The GS2 header, base64.
    pub binding: &'a str,
    pub nonce: &'a str,
    pub proof: Vec<u8>,
    /// Everything before the proof, which it is computed from.
    pub without_proof: &'a str,
}

impl<'a> ClientFinal<'a> {
    /// - Errors: what is wrong, for the log.
    pub fn parse(message: &'a [u8]) -> Result<ClientFinal<'a>, &'static str> {
        let text = text(message)?;
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or("client-final has no proof")?;
        let proof = BASE64
            .decode(proof)
            .map_err(|_| "the proof is not base64, or not the last attribute")?;
        let mut attributes = without_proof.split(',');
        let binding = attribute(attributes.next(), "c=")?;
        let nonce = attribute(attributes.next(), "r=")?;
        check_extensions(attributes)?;
        Ok(ClientFinal {
            binding,
            nonce,
            proof,
            without_proof,
        })
    }

    /// Whether the client repeats the header of its first message.
    pub fn repeats(&self, gs2_header: &str) -> bool {
        self.binding == BASE64.encode(gs2_header)
    }
}

fn text(message: &[u8]) -> Result<&str, &'static str> {
    if message.len() > MESSAGE_BYTES_MAX {
        return Err("the message has more than 4096 bytes");
    }
    let text = std::str::from_utf8(message).map_err(|_| "the message is not UTF-8")?;
    if text.contains('\0') {
        return Err("the message contains NUL");
    }
    Ok(text)
}

fn attribute<'a>(given: Option<&'a str>, prefix: &'static str) -> Result<&'a str, &'static str> {
    given
        .and_then(|given| given.strip_prefix(prefix))
        .ok_or("an attribute is missing or not at its place")
}

/// A `saslname`: `=2C` is a comma and `=3D` is `=`. Kafka does not apply SASLprep, at either end.
pub(super) fn name(encoded: &str) -> Result<String, &'static str> {
    let mut parts = encoded.split('=');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (sign, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return Err("a name contains = without 2C or 3D"),
        };
        name.push(sign);
        name.push_str(rest);
    }
    if name.is_empty() {
        return Err("a name is empty");
    }
    Ok(name)
}

/// Optional extensions are ignored; what only looks like one is refused, or two readers of one
/// message could disagree on its attributes.
fn check_extensions<'a>(extensions: impl Iterator<Item = &'a str>) -> Result<(), &'static str> {
    let mut names = Vec::new();
    for extension in extensions {
        let (name, value) = extension.split_once('=').ok_or("an extension has no value")?;
        if name.is_empty() || value.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err("an extension has no name or no value");
        }
        if name.len() == 1 && DEFINED.contains(name) || names.contains(&name) {
            return Err("an attribute is repeated or not at its place");
        }
        // KIP-48: the password would be the key of a delegation token.
        if name == "tokenauth" && value.eq_ignore_ascii_case("true") {
            return Err("delegation tokens are not served");
        }
        names.push(name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn first(message: &str) -> ClientFirst<'_> {
        ClientFirst::parse(message.as_bytes()).unwrap()
    }

    #[track_caller]
    fn check_first(message: &str, part: &str) {
        let problem = ClientFirst::parse(message.as_bytes()).unwrap_err();
        assert!(problem.contains(part), "{message}: {problem}");
    }

    #[track_caller]
    fn check_final(message: &str, part: &str) {
        let problem = ClientFinal::parse(message.as_bytes()).unwrap_err();
        assert!(problem.contains(part), "{message}: {problem}");
    }

    #[test]
    fn client_first_has_a_header_a_name_and_a_nonce() {
        let message = first("n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        assert_eq!((message.gs2_header, message.identity.as_deref()), ("n,,", None));
        assert_eq!(message.bare, "n=user,r=rOprNGfwEbeRWgbNEkqO");
        assert_eq!((&*message.user, message.nonce), ("user", "rOprNGfwEbeRWgbNEkqO"));
        let message = first("y,a=b=3Dc,n=a=2Cb=3Dü,r=!~,ext=a=b,tokenauth=false");
        assert_eq!(message.gs2_header, "y,a=b=3Dc,");
        assert_eq!(
            (message.identity.as_deref(), &*message.user),
            (Some("b=c"), "a,b=ü")
        );
        assert_eq!(message.nonce, "!~");
    }

    #[test]
    fn a_client_first_that_breaks_the_grammar_is_refused() {
        check_first("", "GS2");
        check_first("n,", "GS2");
        check_first("x,,n=u,r=x", "GS2");
        check_first("n,b=u,n=u,r=x", "GS2");
        check_first("p=tls-unique,,n=u,r=x", "channel binding");
        check_first("n,,m=x,n=u,r=x", "mandatory extension");
        check_first("n,,r=x,n=u", "not at its place");
        check_first("n,,n=u", "not at its place");
        check_first("n,,n=u,n=v,r=x", "not at its place");
        check_first("n,,n=u,r=x,r=y", "repeated");
        check_first("n,,n=u,r=x,n=v", "repeated");
        check_first("n,,n=u,r=x,m=v", "repeated");
        check_first("n,,n=u,r=x,e=1", "repeated");
        check_first("n,,n=u,r=x,ext=1,ext=2", "repeated");
        check_first("n,,n=u,r=x,tokenauth=true", "delegation tokens");
        check_first("n,,n=u,r=x,tokenauth=TRUE", "delegation tokens");
        check_first("n,,n=u,r=x,=1", "extension");
        check_first("n,,n=u,r=x,ext", "extension");
        check_first("n,,n=u,r=", "nonce");
        check_first("n,,n=u,r=a b", "nonce");
        check_first("n,,n=u,r=é", "nonce");
        check_first("n,,n=,r=x", "empty");
        check_first("n,a=,n=u,r=x", "empty");
        check_first("n,,n=a=b,r=x", "without 2C");
        check_first("n,,n=a=2c,r=x", "without 2C");
        check_first("n,,n=a\0b,r=x", "NUL");
        check_first(&format!("n,,n=u,r={}", "x".repeat(4_096)), "4096");
        assert!(ClientFirst::parse(b"n,,n=\xff,r=x").is_err());
    }

    #[test]
    fn client_final_repeats_header_and_nonce_and_ends_with_the_proof() {
        let text = "c=biws,r=rOpr%hvY,ext=1,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let message = ClientFinal::parse(text.as_bytes()).unwrap();
        assert!(message.repeats("n,,") && !message.repeats("y,,") && !message.repeats("n,a=u,"));
        assert_eq!((message.nonce, message.proof.len()), ("rOpr%hvY", 32));
        assert_eq!(message.without_proof, "c=biws,r=rOpr%hvY,ext=1");
    }

    #[test]
    fn a_client_final_that_breaks_the_grammar_is_refused() {
        check_final("", "no proof");
        check_final("c=biws,r=x", "no proof");
        check_final("c=biws,r=x,p=*", "base64");
        check_final("c=biws,r=x,p=AAAA,ext=1", "base64");
        check_final("c=biws,r=x,p=A", "base64");
        check_final("c=biws,r=x,p=AA", "base64");
        check_final("c=biws,r=x,p=AB==", "base64");
        check_final("r=x,c=biws,p=AAAA", "not at its place");
        check_final("c=biws,p=AAAA", "not at its place");
        check_final("c=biws,r=x,p=AAAA,p=AAAA", "repeated");
        check_final("c=biws,r=x,c=biws,p=AAAA", "repeated");
        check_final("c=biws,r=x,tokenauth=true,p=AAAA", "delegation tokens");
    }
}
