# docker build -t oversmoothing .
# docker run --rm -v "$PWD/outputs:/oversmoothing/outputs" oversmoothing
FROM python:3.12-slim
RUN apt-get update && apt-get install -y --no-install-recommends make && rm -rf /var/lib/apt/lists/*
WORKDIR /oversmoothing
COPY . .
RUN make setup
CMD ["make", "demo"]
