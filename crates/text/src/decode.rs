//! Decodes tokens that arrive one by one.

use polygrad_tensor::Result;

use crate::Tokenizer;

/// The most preceding tokens that can change a token's text.
const SEEN: usize = 8;

/// Decodes tokens as they arrive, in whole characters, since a character may be spread over several tokens.
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
    /// Tokens whose text has been returned, which may change the next one's, followed by tokens whose text has not.
    ids: Vec<i64>,
    given: usize,
}

impl Tokenizer {
    /// A stream that omits special tokens.
    pub fn decode_stream(&self) -> DecodeStream<'_> {
        DecodeStream {
            tokenizer: self,
            ids: Vec::new(),
            given: 0,
        }
    }

    /// A [`Tokenizer::decode_stream`] that continues after these tokens, whose own text is not returned: some
    /// tokenizers drop the space before the first token that they decode.
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
    /// The text that this token completes; empty if the tokens end within a character.
    ///
    /// # Errors
    /// If the token is outside the vocabulary.
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

    /// The remaining text, if the tokens end within a character.
    ///
    /// # Errors
    /// Only those of [`Tokenizer::decode`], which has accepted the tokens before.
    pub fn finish(self) -> Result<String> {
        self.rest()
    }

    fn rest(&self) -> Result<String> {
        let before = self.tokenizer.decode(&self.ids[..self.given], true)?;
        let all = self.tokenizer.decode(&self.ids, true)?;
        // If later tokens change the text of the earlier ones, only the part after the common beginning is new.
        let same = before.bytes().zip(all.bytes()).take_while(|(a, b)| a == b).count();
        let start = (0..=same).rev().find(|&at| all.is_char_boundary(at)).unwrap_or(0);
        Ok(all[start..].to_owned())
    }
}
