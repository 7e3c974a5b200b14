# syntax=docker/dockerfile:1
# The heyday program in a small image: built in one stage, run in another by a user that owns nothing.
#
#   docker build -t heyday .
#   docker run --rm heyday --help

FROM rust:1.95-slim-bookworm AS build
WORKDIR /heyday
# Dependencies and objects stay in the builder's cache: the next build compiles what has changed only.
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/heyday/target \
    cargo build --locked --release --bin heyday \
    && strip --output-file=/usr/local/bin/heyday target/release/heyday

FROM debian:bookworm-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin heyday
COPY --from=build /usr/local/bin/heyday /usr/local/bin/heyday
USER 10001
# SIGTERM makes a worker finish its batch and hand over its shards.
STOPSIGNAL SIGTERM
EXPOSE 9464
ENTRYPOINT ["heyday"]
CMD ["worker"]
