"""PACKAGE DOC penstock.db"""
