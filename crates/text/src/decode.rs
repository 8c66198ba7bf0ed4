//! Text of tokens that come one by one.

use polygrad_tensor::Result;

use crate::Tokenizer;

/// What a token looks like depends on so many before it at most.
const SEEN: usize = 8;

/// Gives the text of tokens as they come, in whole characters: a character may be spread over several tokens.
///
/// ```
/// use polygrad_text::Tokenizer;
/// # fn main() -> polygrad_tensor::Result<()> {
/// let tokenizer = Tokenizer::bytes();
/// let mut stream = tokenizer.decode_stream();
/// assert_eq!(stream.push(0xC3)?, "");
/// assert_eq!(stream.push(0xA9)?, "é");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DecodeStream<'a> {
    tokenizer: &'a Tokenizer,
    /// Tokens whose text has been given, which the next one's may depend on, and then those whose has not.
    ids: Vec<i64>,
    given: usize,
}

impl Tokenizer {
    /// A stream that leaves special tokens out.
    pub fn decode_stream(&self) -> DecodeStream<'_> {
        DecodeStream {
            tokenizer: self,
            ids: Vec::new(),
            given: 0,
        }
    }

    /// [`Tokenizer::decode_stream`] of what follows these tokens, whose own text is not given: some tokenizers drop
    /// the space before the first of the tokens that they see.
    pub fn decode_stream_after(&self, ids: &[i64]) -> DecodeStream<'_> {
        let ids = ids[ids.len().saturating_sub(SEEN)..].to_vec();
        DecodeStream {
            tokenizer: self,
            given: ids.len(),
            ids,
        }
    }
}

impl DecodeStream<'_> {
    /// The text that this token completes; empty where it ends within a character.
    ///
    /// # Errors
    /// When the token is outside the vocabulary.
    pub fn push(&mut self, id: i64) -> Result<String> {
        self.ids.push(id);
        let piece = self.rest();
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) => {
                self.ids.pop();
                return Err(error);
            }
        };
        if piece.is_empty() || piece.ends_with(char::REPLACEMENT_CHARACTER) {
            return Ok(String::new());
        }
        // The last piece stays, since spaces between words depend on it.
        self.ids.drain(..self.given);
        self.given = self.ids.len();
        Ok(piece)
    }

    /// What is left, where the tokens end within a character.
    ///
    /// # Errors
    /// None but those of [`Tokenizer::decode`], which has accepted the tokens before.
    pub fn finish(self) -> Result<String> {
        self.rest()
    }

    fn rest(&self) -> Result<String> {
        let before = self.tokenizer.decode(&self.ids[..self.given], true)?;
        let all = self.tokenizer.decode(&self.ids, true)?;
        // Where the tokens before look otherwise with what follows, only what follows is new.
        let same = before.bytes().zip(all.bytes()).take_while(|(a, b)| a == b).count();
        let start = (0..=same).rev().find(|&at| all.is_char_boundary(at)).unwrap_or(0);
        Ok(all[start..].to_owned())
    }
}
