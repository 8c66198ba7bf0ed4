//! Tokenizers from the metadata of GGUF files.

use polygrad_tensor::{Error, ErrorKind, Result};
use tokenizers::AddedToken;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::normalizer::SplitDelimiterBehavior;

use crate::Tokenizer;
use crate::tokenizer::failed;

const OP: &str = "from_gguf";

/// From Llama 3's tokenizer.json.
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// From Qwen 2's tokenizer.json.
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// GGUF's types of tokens that are not split: control and user-defined.
const SPECIAL: [i64; 2] = [3, 4];

impl Tokenizer {
    /// A byte-level BPE tokenizer from a GGUF file's metadata: `tokenizer.ggml.pre`, `tokens`, `merges` and
    /// `token_type` (empty if the file has none), for files whose `tokenizer.ggml.model` is `gpt2`.
    ///
    /// # Errors
    /// If the way of splitting texts is not supported, or the lists do not fit together.
    pub fn from_gguf(pre: &str, tokens: &[String], merges: &[String], token_types: &[i64]) -> Result<Self> {
        let bytes = |regex: bool| ByteLevel::new(false, true, regex);
        let split = |pattern: &str| {
            let pattern = SplitPattern::Regex(pattern.to_owned());
            let split = Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(|e| failed(OP, e))?;
            Ok::<_, Error>(vec![PreTokenizerWrapper::from(split), bytes(false).into()])
        };
        let parts = match pre {
            "gpt-2" | "default" => vec![bytes(true).into()],
            "smollm" => vec![Digits::new(true).into(), bytes(true).into()],
            "llama-bpe" => split(LLAMA3)?,
            "qwen2" => split(QWEN2)?,
            other => {
                return Err(
                    Error::unsupported(format!("texts are split by {other:?}, which is not there"))
                        .with_op(OP)
                        .with_hint("there are gpt-2, smollm, llama-bpe and qwen2"),
                );
            }
        };
        let fail = |text: String| Error::new(ErrorKind::Format, text).with_op(OP);
        if !token_types.is_empty() && token_types.len() != tokens.len() {
            return Err(fail(format!("{} types for {} tokens", token_types.len(), tokens.len())));
        }
        let vocabulary: Vocab = tokens.iter().cloned().zip(0..).collect();
        let pair = |merge: &String| {
            let (a, b) = merge
                .split_once(' ')
                .ok_or_else(|| fail(format!("the merge {merge:?} is no pair")))?;
            Ok((a.to_owned(), b.to_owned()))
        };
        let merges: Vec<(String, String)> = merges.iter().map(pair).collect::<Result<_>>()?;
        let model = BPE::builder()
            .vocab_and_merges(vocabulary, merges)
            // Words that are tokens in Llama 3's vocabulary need no merges.
            .ignore_merges(pre == "llama-bpe")
            .build()
            .map_err(|e| failed(OP, e))?;
        let mut inner = tokenizers::Tokenizer::new(model);
        inner.with_pre_tokenizer(Some(Sequence::new(parts)));
        inner.with_decoder(Some(bytes(true)));
        let special = tokens
            .iter()
            .zip(token_types)
            .filter(|(_, kind)| SPECIAL.contains(kind));
        let special: Vec<AddedToken> = special
            .map(|(token, _)| AddedToken::from(token.as_str(), true))
            .collect();
        inner.add_special_tokens(special).map_err(|e| failed(OP, e))?;
        Self::wrapped(inner)
    }
}
