# A release builds on its digest: .github/workflows/release.yml.
ARG BASE=python:3.11.14-slim-bookworm
FROM ${BASE}

# A Space is shown in a frame of the Hub.
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 WEIGHBRIDGE_EMBEDDED_IN=https://huggingface.co
RUN useradd --create-home --uid 1000 weighbridge && install --directory --owner=1000 --group=1000 /cache
WORKDIR /app
COPY requirements.txt ./
RUN pip install --no-cache-dir --no-compile -r requirements.txt
COPY app.py ./
COPY .streamlit ./.streamlit
COPY calc ./calc
COPY presets ./presets
COPY cli ./cli
COPY pages ./pages

USER 1000
EXPOSE 8501
HEALTHCHECK --interval=30s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "import urllib.request as u; assert u.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4).read() == b'ok'"]
CMD ["streamlit", "run", "app.py", "--server.headless=true", "--server.address=0.0.0.0", "--server.port=8501"]
